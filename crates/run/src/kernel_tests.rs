use super::*;

#[test]
fn the_buffer_holds_four_seconds_of_jobs() {
    let task = |period| Task::periodic("t", period, Span::from_ns(1));
    let (slow, fast) = (task(Span::from_ms(10)), task(Span::from_us(50)));
    assert_eq!(buffer(&[&slow], 5), Bytes::new(1 << 20), "the least");
    assert_eq!(buffer(&[&slow, &fast], 5), Bytes::new(80_400 * 400));
    assert_eq!(buffer(&[&fast, &fast, &fast], 5), takt_linux::tracing::BUFFER, "the most");
}
