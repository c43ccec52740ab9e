use super::*;
use crate::dispatch::{Operation, Operations};
use takt_model::Span;

#[test]
fn levels_get_priorities_below_that_of_the_timers() {
    let ms = Span::from_ms;
    let operations = Operations::new("two")
        .with(Operation::periodic("slow", ms(40)).wcet(ms(1)))
        .with(Operation::periodic("fast", ms(10)).wcet(ms(1)));
    let plan = operations.compute(&Builtin::Rm.strategy(), &Limits::default()).unwrap();
    assert_eq!((plan.timer_priority, plan.demoted_priority), (48, None));
    let rows: Vec<(&str, u32, u8)> = plan.rows.iter().map(|row| (row.name.as_str(), row.level, row.priority)).collect();
    assert_eq!(rows, [("slow", 1, 46), ("fast", 0, 47)]);
}
