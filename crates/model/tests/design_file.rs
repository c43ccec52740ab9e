//! The file of DESIGN.md, and a file that uses every key.

use takt_model::file::{parse, write};
use takt_model::*;

const DESIGN: &str = include_str!("files/design.toml");

#[test]
fn the_file_of_the_design_is_read() {
    let system = parse(DESIGN, "design.toml").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(system.name, "example");
    let n1 = &system.nodes[0];
    assert_eq!((n1.cpus, n1.placement, n1.fit), (2, Placement::Clustered { cpus: 1 }, Fit::WorstFit));
    assert_eq!(n1.costs.unwrap().migrate, Span::from_us(5));
    assert_eq!(n1.link, Some(Link::at(Rate::from_bps(1_000_000_000))));
    assert_eq!(n1.send, Some(TableTask { period: Span::from_ms(5), wcet: Span::from_ms(1), cost: None }));
    assert_eq!(system.strategies[0].levels[1].late, Late::Drop);
    assert_eq!(system.modes[0].strategy, StrategyRef::Builtin(Builtin::Muf));
    assert_eq!(system.components[0].budget, Auto::Value(Span::from_ms(3)));
    let [video, show] = &system.tasks[..] else { panic!("two tasks") };
    assert_eq!(video.exec, Exec::Uniform { min: Span::from_us(1200), max: Span::from_ms(12) });
    assert_eq!((video.priority, video.wss), (Some(3), Bytes::new(65536)));
    assert_eq!((show.period, show.deadline), (Span::from_ms(40), Span::from_ms(15)));
    assert_eq!(show.after, [TaskId(0)]);
    assert_eq!(system.flows[0].path, [NodeId(0), NodeId(1), NodeId(2)]);
    assert_eq!(system.networks[0].delay, Auto::Value((Span::from_us(100), Span::from_us(400))));
    assert_eq!(parse(&write(&system), "canonical.toml"), Ok(system));
}
