use takt_log::Event;
use takt_model::*;
use takt_run::{RunOptions, ServerBackEnd, run};

#[test]
fn dump() {
    let text = std::fs::read_to_string("/work/main/crates/cli/tests/golden/throttled.toml").unwrap();
    let system = takt_model::file::parse(&text, "golden").unwrap();
    let mut events: Vec<(u32, Time, Event)> = Vec::new();
    let options = RunOptions { back_end: Some(ServerBackEnd::Deadline), ..RunOptions::new(Span::from_ms(300)) };
    let summary = run(&system, &options, &mut events).unwrap();
    println!("{summary:#?}");
    for (_, at, event) in &events {
        if !matches!(event, Event::Occupy { .. }) {
            println!("{at} {event:?}");
        }
    }
}
