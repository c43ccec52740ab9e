//! Lists the present threads.

use std::fs;

use crate::sched::{self, Class};

/// A thread, as described by /proc and the scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadInfo {
    /// Its id, called pid in events.
    pub id: u32,
    /// Its process.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// A thread of the kernel's own.
    pub of_kernel: bool,
    /// Its class with parameters. Classes missing in [`Class`] count as `Other`.
    pub class: Class,
    /// The kernel's number of its class: SCHED_BATCH is 3, SCHED_IDLE is 5.
    pub policy: u32,
    /// Nice value of an ordinary thread.
    pub nice: i32,
    /// CPUs that it may use.
    pub affinity: Vec<u32>,
}

/// All threads, ordered by process and id. Threads that start or end meanwhile may be missing.
#[must_use]
pub fn threads() -> Vec<ThreadInfo> {
    let mut processes = numbers("/proc");
    processes.sort_unstable();
    let mut all = Vec::new();
    for process in processes {
        let mut ids = numbers(&format!("/proc/{process}/task"));
        ids.sort_unstable();
        all.extend(ids.into_iter().filter_map(|id| thread(process, id)));
    }
    all
}

/// The present class of the thread with this id; `None` if the thread is gone.
#[must_use]
pub fn class_of(id: u32) -> Option<Class> {
    sched::of_thread(id).map(|scheduling| scheduling.class)
}

fn thread(process: u32, id: u32) -> Option<ThreadInfo> {
    let stat = fs::read(format!("/proc/{process}/task/{id}/stat")).ok()?;
    let (name, flags) = parse(&String::from_utf8_lossy(&stat))?;
    let scheduling = sched::of_thread(id)?;
    Some(ThreadInfo {
        id,
        process,
        name,
        of_kernel: flags & PF_KTHREAD != 0,
        class: scheduling.class,
        policy: scheduling.policy,
        nice: scheduling.nice,
        affinity: sched::affinity_of(id),
    })
}

const PF_KTHREAD: u64 = 0x0020_0000;

/// Name and flags (field 9); the name may hold anything.
fn parse(stat: &str) -> Option<(String, u64)> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    Some((name.to_owned(), rest.split_ascii_whitespace().nth(6)?.parse().ok()?))
}

fn numbers(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::Tid;

    #[test]
    fn the_calling_thread_is_among_them() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let named = std::thread::Builder::new().name("a) name (".to_owned()).spawn(move || {
            tell.send(Tid::current()).unwrap();
            let _ = receive.recv();
        });
        let id = u32::try_from(told.recv().unwrap().get()).unwrap();
        let all = threads();
        drop(send);
        named.unwrap().join().unwrap();
        let one = all.iter().find(|thread| thread.id == id).unwrap();
        assert_eq!((one.process, one.name.as_str()), (std::process::id(), "a) name ("));
        assert!(!one.of_kernel && !one.affinity.is_empty());
        assert_eq!((one.class, one.policy), (Class::Other, 0));
    }
}
