//! Properties of every System and every file.

use proptest::prelude::*;

use super::*;
use crate::testing::{system_from, systems};
use crate::{Builtin, Span, Task};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_written_system_is_read_back_unchanged(system in systems()) {
        validate(&system).unwrap_or_else(|errors| panic!("{errors}\n{}", write(&system)));
        let text = write(&system);
        let again = parse(&text, "written.toml").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        prop_assert_eq!(&again, &system, "{}", text);
        prop_assert_eq!(write(&again), text);
    }

    /// A file and the System that it says are held to the same rules.
    #[test]
    fn a_document_keeps_every_comment(
        system in systems(),
        comments in prop::collection::vec("[ -~\u{b5}]{0,12}", 1..9),
    ) {
        let mut text = String::new();
        let mut next = comments.iter().cycle();
        for line in write(&system).lines() {
            let comment = next.next().map_or("", String::as_str);
            let own_line = comment.len() % 2 == 0;
            text.push_str(&if own_line { format!("  # {comment}\n{line}\n") } else { format!("{line}\t#{comment}\n") });
        }
        let document = Document::parse(&text, "commented.toml").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        prop_assert_eq!(document.system(), &system);
        prop_assert_eq!(document.text(), &text[..]);
        let edits: Vec<Edit> = system.tasks.iter().enumerate().map(|(i, task)| {
            let all = crate::CpuSet::first(system.nodes[task.node.index()].cpus);
            let cpus = task.cpus.is_none().then_some(all);
            Edit::TaskCpus { task: crate::TaskId(i as u32), cpus }
        }).collect();
        let mut edited = document.clone();
        edited.apply(&edits).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let kept = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("cpus")).map(|line| line.trim_end().to_owned()).collect()
        };
        // Whole lines stay as they were, save those of `cpus` themselves and comments in front of a removed one.
        for line in kept(edited.text()) {
            prop_assert!(text.contains(&line), "{} is new\n{}", line, text);
        }
    }

    #[test]
    fn no_text_panics(text in "([a-z\\-]{1,6}( = |\\.)?[\\[\\]{}\"#0-9a-z,]{0,12}\n){0,12}") {
        let _ = parse(&text, "any.toml");
    }
}

/// The random Systems leave no key of the format out.
#[test]
fn every_key_is_written_by_some_random_system() {
    let mut text = String::new();
    let mut state = 1u64;
    for _ in 0..300 {
        let choices: Vec<u64> = (0..400)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 33
            })
            .collect();
        text.push_str(&write(&system_from(&choices)));
    }
    let reference = reference();
    let keys = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(key, _)| key);
    let missing: Vec<&str> =
        keys.filter(|key| !text.contains(&format!("{key} = ")) && !text.contains(&format!("[[{key}]]"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_empty_list_of_choices_is_the_simplest_system() {
    assert_eq!(system_from(&[]).nodes.len(), 1);
}

#[test]
fn ten_thousand_tasks_are_read() {
    // With a quadratic step this test would take minutes.
    let tasks = (0..10_000).map(|i| {
        let mut task = Task::periodic(&format!("task {i}"), Span::from_ms(10), Span::from_us(1));
        if i % 2 == 1 {
            task.after = vec![crate::TaskId(i - 1)];
        }
        task
    });
    let system = crate::System::local(4, Builtin::Rm, tasks.collect());
    let text = write(&system);
    assert_eq!(parse(&text, "large.toml"), Ok(system));
}
