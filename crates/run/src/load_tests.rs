//! As ordinary threads: no privilege, no timing; what must be so on any machine.

use super::*;

const MS: fn(u64) -> Span = Span::from_ms;

fn other<'a, T>(name: &str, body: impl FnOnce(&mut LoadContext) -> T + Send + 'a) -> Member<'a, T> {
    Member::new(name, Class::Other, body)
}

#[test]
fn threads_begin_together_and_end_in_time() {
    let members = vec![other("a", greedy), other("b", greedy)];
    let ended = together(members, &Place::Anywhere, MS(60), &mut |_| true).unwrap();
    assert_eq!(ended.values.len(), 2);
    for ran in &ended.values {
        assert!(ran.to >= Time::ZERO.saturating_add(MS(60)), "{ran:?}");
        assert!(ran.cpu <= ran.to.saturating_since(ran.from) && ran.share() <= 1.0, "{ran:?}");
    }
    assert!(ended.end >= Time::ZERO.saturating_add(MS(60)));
}

#[test]
fn a_greedy_load_stops_on_request() {
    let mut asked = 0;
    let ended = together(vec![other("a", greedy)], &Place::Anywhere, Span::from_s(600), &mut |_| {
        asked += 1;
        asked < 3
    })
    .unwrap();
    assert!(ended.end < Time::ZERO.saturating_add(Span::from_s(300)), "{ended:?}");
}

#[test]
fn jobs_come_one_after_the_other_and_none_is_left_out() {
    let body = |context: &mut LoadContext| periodic(context, MS(5), MS(1));
    let ended = together(vec![other("p", body)], &Place::Anywhere, MS(100), &mut |_| true).unwrap();
    let jobs = &ended.values[0];
    assert!(!jobs.is_empty() && jobs.len() <= 20);
    for (i, job) in jobs.iter().enumerate() {
        assert_eq!(job.arrival, Time::ZERO.saturating_add(Span::from_ms(5 * i as u64)));
        assert!(job.completion > job.arrival, "{job:?}");
    }
}

#[test]
fn a_film_is_shown_in_order_and_never_early() {
    let film = FrameSequence { frames: vec![MS(1); 10], period: MS(5), refresh: MS(1) };
    let members = vec![other("v", |context: &mut LoadContext| player(context, &film))];
    let ended = together(members, &Place::Anywhere, Span::from_s(20), &mut |_| true).unwrap();
    let shown = &ended.values[0];
    assert_eq!(shown.len(), 10, "a film ends when its frames do");
    assert!(shown.iter().enumerate().all(|(i, at)| *at >= Time::ZERO.saturating_add(MS(5 * (i as u64 + 1)))));
    assert!(shown.is_sorted());
}

#[test]
fn each_request_is_served_once() {
    enum ThreadResult {
        Driver(Driver),
        Reader(Reader),
    }
    let line = Line::default();
    let cost = |number| Span::from_us(50 + number % 3);
    let members = vec![
        other("driver", |context: &mut LoadContext| ThreadResult::Driver(driver(context, &line, cost))),
        other("reader", |context: &mut LoadContext| {
            ThreadResult::Reader(reader(context, &line, 40, Span::from_us(20), Span::from_us(5)))
        }),
    ];
    let ended = together(members, &Place::Anywhere, Span::from_s(60), &mut |_| true).unwrap();
    let [ThreadResult::Driver(driver), ThreadResult::Reader(reader)] = ended.values.as_slice() else {
        panic!("in order")
    };
    assert_eq!((driver.served, reader.read), (40, 40));
    assert!(driver.cpu >= Span::from_us(40 * 50) && reader.took >= Span::from_us(40 * 70), "{driver:?} {reader:?}");
    assert!(ended.end < Time::ZERO.saturating_add(Span::from_s(50)), "all ended with the last request");
}

#[test]
fn a_refused_class_ends_all() {
    let priority = Class::Fifo { priority: 200 };
    let members = vec![other("a", greedy), Member::new("b", priority, greedy)];
    let refused = together(members, &Place::Anywhere, Span::from_s(600), &mut |_| true);
    assert!(refused.is_err(), "{refused:?}");
}
