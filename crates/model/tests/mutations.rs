//! Mutated files, in the stable tool chain: what the fuzz targets do without end, a few thousand times the same.

use takt_model::file::{parse, validate, write};
use takt_model::import::rtapp::import;

/// A fixed generator, so that a failure comes back.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

const PIECES: &[&str] = &[
    "0",
    "-1",
    "1.5",
    "\"\"",
    "\"0ns\"",
    "\"1ms\"",
    "\"99999999s\"",
    "[]",
    "{}",
    "true",
    "=",
    ",",
    "\n",
    "\"",
    "[[task]]\n",
    "#",
    "a",
    "after = [\"video\"]\n",
    "\u{b5}",
    "9223372036854775807",
    "\"sleep\": 1,",
    "\"loop\": -1,",
    "}",
    "{",
    "]",
    "\"timer\"",
];

fn mutate(seed: &str, random: &mut Lcg) -> String {
    let mut text = seed.to_owned();
    for _ in 0..1 + random.below(4) {
        let mut at = random.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let mut end = (at + random.below(24)).min(text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        match random.below(4) {
            0 => text.replace_range(at..end, ""),
            1 => text.insert_str(at, PIECES[random.below(PIECES.len())]),
            2 => text.replace_range(at..end, PIECES[random.below(PIECES.len())]),
            _ => {
                // A line moves or is doubled.
                let lines: Vec<String> = text.lines().map(str::to_owned).collect();
                if let Some(line) = lines.get(random.below(lines.len())) {
                    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
                    text.insert_str(start, &format!("{line}\n"));
                }
            }
        }
    }
    text
}

#[test]
fn system_files() {
    let mut seeds = vec![include_str!("files/design.toml").to_owned()];
    let cases = include_str!("files/errors.txt").split("\n--- ").skip(1);
    seeds.extend(cases.filter_map(|case| Some(case.split_once('\n')?.1.split_once("=>\n")?.0.to_owned())));
    let mut random = Lcg(1);
    let mut good = 0;
    for _ in 0..6_000 {
        let seed = random.below(seeds.len() * 2);
        let text = mutate(seeds.get(seed).unwrap_or(&seeds[0]), &mut random);
        let Ok(system) = parse(&text, "mutated.toml") else { continue };
        good += 1;
        validate(&system).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let written = write(&system);
        assert_eq!(parse(&written, "written.toml").as_ref(), Ok(&system), "{text}\n{written}");
    }
    assert!(good > 100, "only {good} mutated files were valid");
}

#[test]
fn workloads() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rt-app");
    let mut names: Vec<_> =
        std::fs::read_dir(folder).expect("the examples exist").map(|e| e.expect("an entry").path()).collect();
    names.sort();
    let mut seeds: Vec<String> = names.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    let cases = include_str!("files/rtapp/errors.txt").split("\n--- ").skip(1);
    seeds.extend(cases.filter_map(|case| Some(case.split_once('\n')?.1.split_once("=>\n")?.0.to_owned())));
    let mut random = Lcg(1);
    let mut good = 0;
    for _ in 0..6_000 {
        let seed = random.below(seeds.len());
        let text = mutate(&seeds[seed], &mut random);
        let Ok(imported) = import(&text, "mutated.json") else { continue };
        good += 1;
        if imported.system.tasks.len() < 1000 {
            let written = write(&imported.system);
            assert_eq!(parse(&written, "written.toml").as_ref(), Ok(&imported.system), "{text}\n{written}");
        }
    }
    assert!(good > 100, "only {good} mutated workloads were valid");
}
