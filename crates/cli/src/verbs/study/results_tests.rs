//! Tests of the results of a study.

use clap::Parser as _;

use super::super::definition::Definition;
use super::*;
use crate::args::{Takt, Verb};

fn findings(tests: &str, bits: [u64; 2]) -> Vec<String> {
    let words = "takt study --cpus 2 --tasks 4 --utilization 0.5 --sets 2 -o x --tests".split(' ').chain([tests]);
    let Ok(Takt { verb: Verb::Study(options), .. }) = Takt::try_parse_from(words) else { panic!("good options") };
    let definition = Definition::new(&options).expect("a study");
    let chunk = bits.map(|bits| Verdicts { bits, utilization: 1_000_000_000 }).to_vec();
    Results::new(&definition, &BTreeMap::from([((0, 0), chunk)])).findings()
}

#[test]
fn a_yes_against_a_no_and_against_a_theorem_is_a_finding() {
    assert_eq!(findings("gfb,exact", [0b01_01, 0b10_00]), Vec::<String>::new());
    let against =
        "edf/gfb says yes where edf/exact says no: 1 sets; the first is set 1 of 2 CPUs, 4 tasks, 0.5 per CPU";
    assert_eq!(findings("gfb,exact", [0b01_01, 0b10_01]), [against]);
    let theorem = findings("gfb,ff-dbf", [0b00_01, 0b01_01]);
    assert!(
        theorem.len() == 1 && theorem[0].starts_with("edf/gfb accepts 1 sets that edf/ff-dbf does not"),
        "{theorem:?}"
    );
    // Another scheduler's miss.
    assert_eq!(findings("worst-fit,sim", [0b10_01, 0]), Vec::<String>::new());
}

#[test]
fn intervals_are_wilsons() {
    let close = |(p, low, high): (f64, f64, f64), wanted: [f64; 3]| {
        [p, low, high].iter().zip(wanted).all(|(a, b)| (a - b).abs() < 5e-4)
    };
    assert!(close(wilson(5, 10), [0.5, 0.2366, 0.7634]));
    assert!(close(wilson(0, 10), [0.0, 0.0, 0.2775]));
    assert!(close(wilson(1000, 1000), [1.0, 0.9962, 1.0]));
}
