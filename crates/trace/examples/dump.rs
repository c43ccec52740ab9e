//! Prints every event of a trace as takt reads it: `cargo run --example dump -- trace.dat`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give a file")?;
    let bytes = std::fs::read(path)?;
    let bytes = takt_trace::unpacked(&bytes)?;
    let mut recording = takt_trace::Recording::open(&bytes)?;
    let mut events = Vec::new();
    recording.each(|event| events.push(*event));
    for event in events {
        println!(
            "{} {} {} {} {:?}",
            event.time.as_ns(),
            event.cpu,
            event.pid,
            recording.names().name(event.name),
            event.what
        );
    }
    for damage in recording.damages().first() {
        eprintln!("{damage}");
    }
    eprintln!("{:?}, clock {:?}, {} broken places", recording.form(), recording.clock(), recording.damages().count());
    Ok(())
}
