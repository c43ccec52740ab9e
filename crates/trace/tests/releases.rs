//! Releases of real threads: what is known of them stands in tests/data/README.md.

use takt_model::{Arrival, Span, file};
use takt_trace::infer::{Inferred, Kind, SystemOptions, parse_releases};

fn files() -> Vec<(String, String)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/releases");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<(String, String)> = entries
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn inferred(name: &str, text: &str) -> takt_trace::infer::InferredTask {
    Inferred::of_releases(vec![(name.to_owned(), parse_releases(text).unwrap())]).tasks.remove(0)
}

#[test]
fn true_periods_are_found_and_others_are_not_periodic() {
    let (mut periodic, mut others) = (0, 0);
    for (name, text) in files() {
        let task = inferred(&name, &text);
        let arrivals = &task.arrivals;
        match name.split_once("period=") {
            Some((_, truth)) => {
                let truth: u64 = truth.parse().unwrap();
                let grid = arrivals.grid.unwrap_or_else(|| panic!("{name}: {}", arrivals.why));
                assert_eq!(arrivals.kind, Kind::Periodic, "{name}");
                // A thousandth is asked for; these are so clean that the very number comes out.
                assert_eq!(grid.period.as_ns(), truth, "{name}");
                assert!(grid.period_min <= grid.period && grid.period <= grid.period_max, "{name}");
                assert!((grid.period_max - grid.period_min).as_ns() * 10_000 < truth, "{name}: {grid:?}");
                assert!(grid.jitter < Span::from_us(60) && grid.skipped == 0, "{name}: {grid:?}");
                periodic += 1;
            }
            None => {
                assert_eq!(arrivals.kind, Kind::Sporadic, "{name}: {}", arrivals.why);
                assert!(arrivals.grid.is_none());
                others += 1;
            }
        }
    }
    assert_eq!((periodic, others), (4, 2));
}

/// All releases of LiME-org/py-rt-model-inference 82bea7e: the figures of docs/reference/verbs/infer.md.
/// TAKT_RELEASES names its folder tests/traces.
#[test]
#[ignore = "needs 290 MB of releases: git clone https://github.com/LiME-org/py-rt-model-inference"]
fn the_figures_of_the_page_are_true() {
    let folder = std::env::var("TAKT_RELEASES").expect("TAKT_RELEASES is the folder tests/traces of a clone");
    let read = |kind: &str| {
        let entries = std::fs::read_dir(std::path::Path::new(&folder).join(kind)).expect("is a folder");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        let tasks = paths.into_iter().map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let task = inferred(&name, &std::fs::read_to_string(path).expect("a file"));
            (name, task)
        });
        tasks.collect::<Vec<_>>()
    };
    let (periodic, sporadic) = (read("periodic"), read("sporadic"));
    let found = periodic.iter().filter(|(name, task)| {
        let truth: u64 = name.split_once("period=").expect("a period").1.parse().expect("a number");
        let is_it = task.arrivals.grid.is_some_and(|grid| grid.period.as_ns().abs_diff(truth) * 1000 <= truth);
        if !is_it {
            println!("{name}: {} {}", task.arrivals.kind.name(), task.arrivals.why);
        }
        is_it
    });
    let found = found.count();
    let called: Vec<String> = sporadic
        .iter()
        .filter(|(_, task)| task.arrivals.kind == Kind::Periodic)
        .map(|(name, task)| format!("{name}: {} jobs, {:?}: {}", task.jobs, task.arrivals.grid, task.arrivals.why))
        .collect();
    println!("{}", called.join("\n"));
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/verbs/infer.md");
    let page = std::fs::read_to_string(page).expect("the page").replace('\n', " ");
    let figures = [
        format!("finds the period of {found} of the {} periodic threads", periodic.len()),
        format!("calls {} of the {} sporadic threads periodic", called.len(), sporadic.len()),
    ];
    for figure in figures {
        assert!(page.contains(&figure), "the page does not say: takt {figure}");
    }
}

/// A part of the jobs may be too few to decide, but never decides wrongly; the period is within a
/// thousandth, and more jobs bound it tighter.
#[test]
fn more_jobs_bound_the_period_tighter() {
    for (name, text) in files().into_iter().filter(|(name, _)| name.contains("period=")) {
        let truth: u64 = name.split_once("period=").unwrap().1.parse().unwrap();
        let mut widths = Vec::new();
        for jobs in [5, 10, 20, 40, 80, 120, 170, 240, 314] {
            let lines: Vec<&str> = text.lines().take(jobs).collect();
            let task = inferred(&name, &lines.join("\n"));
            let Some(grid) = task.arrivals.grid else {
                assert!(
                    task.arrivals.kind == Kind::Unknown && jobs < 314,
                    "{name}: {jobs} jobs: {}",
                    task.arrivals.why
                );
                continue;
            };
            assert!(grid.period.as_ns().abs_diff(truth) * 1000 <= truth, "{name}: {jobs} jobs: {}", grid.period);
            assert!(grid.period_min.as_ns() <= truth && truth <= grid.period_max.as_ns(), "{name}: {jobs}: {grid:?}");
            widths.push(grid.period_max - grid.period_min);
        }
        assert_eq!(widths.iter().min(), widths.last(), "{name}: {widths:?}");
    }
}

#[test]
fn a_system_of_releases_is_one_that_can_be_read() {
    let files = files().into_iter().map(|(name, text)| (name, parse_releases(&text).unwrap()));
    let inferred = Inferred::of_releases(files.collect());
    let without = inferred.system(&SystemOptions::default());
    assert!(without.system.tasks.is_empty() && without.left_out.len() == 6, "no execution is known");
    let options = SystemOptions { wcet: Some(Span::from_ms(1)), ..SystemOptions::default() };
    let written = inferred.system(&options);
    assert_eq!(file::parse(&written.text, "inferred.toml").unwrap(), written.system, "{}", written.text);
    for task in &written.system.tasks {
        let periodic = task.name.contains("period=");
        assert_eq!(task.arrival == Arrival::Periodic, periodic, "{}", written.text);
        assert!(!periodic || task.deadline == task.period);
    }
}

/// Numbers at the ends of what a file may hold: nothing overflows, and what is written can be read
/// or is nothing.
#[test]
fn extreme_releases_do_no_harm() {
    let most = i64::MAX as u64;
    let lists: [Vec<u64>; 5] = [
        vec![0, most],
        (0..40).map(|k| k * (most / 40)).collect(),
        (0..60).map(|k| most - 60 + k).collect(),
        [vec![0; 30], vec![most; 30]].concat(),
        (0..50).map(|k| (1 << k) - 1).collect(),
    ];
    for list in lists {
        let text: Vec<String> = list.iter().map(u64::to_string).collect();
        let releases = parse_releases(&text.join("\n")).unwrap();
        let options = SystemOptions { wcet: Some(Span::from_ms(1)), ..SystemOptions::default() };
        let written = Inferred::of_releases(vec![("a".to_owned(), releases)]).system(&options);
        if let Ok(system) = file::parse(&written.text, "inferred.toml") {
            assert_eq!(system, written.system);
        }
    }
}
