//! Circles in graphs: of nested components, and of tasks that wait for each other.

/// Circles in a graph of edges. Each node is in at most one returned circle. Linear, without
/// recursion.
pub(super) fn cycles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NEW: u8 = 0;
    const OPEN: u8 = 1;
    const DONE: u8 = 2;
    let mut state = vec![NEW; edges.len()];
    let mut in_cycle = vec![false; edges.len()];
    let mut found = Vec::new();
    for start in 0..edges.len() {
        if state[start] != NEW {
            continue;
        }
        state[start] = OPEN;
        let mut trail: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some((node, next)) = trail.last_mut() {
            let node = *node;
            let Some(target) = edges[node].get(*next).copied() else {
                state[node] = DONE;
                trail.pop();
                continue;
            };
            *next += 1;
            match state[target] {
                NEW => {
                    state[target] = OPEN;
                    trail.push((target, 0));
                }
                OPEN if !in_cycle[target] && !in_cycle[node] => {
                    let from = trail.iter().position(|(node, _)| *node == target).unwrap_or(0);
                    let cycle: Vec<usize> = trail[from..].iter().map(|(node, _)| *node).collect();
                    if cycle.iter().all(|node| !in_cycle[*node]) {
                        cycle.iter().for_each(|node| in_cycle[*node] = true);
                        found.push(cycle);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// So many names of a circle are spelled out.
const SPELLED_MAX: usize = 8;

/// `a -> b -> a`; of a long circle the first names, and how many there are.
pub(super) fn spelled(names: &[&str], link: &str) -> String {
    let first = names.first().copied().unwrap_or_default();
    let mut text = names.get(..SPELLED_MAX).unwrap_or(names).join(link);
    text.push_str(link);
    if names.len() > SPELLED_MAX {
        text.push_str("...");
        text.push_str(link);
    }
    text.push_str(first);
    if names.len() > SPELLED_MAX {
        text.push_str(&format!(" ({} in all)", names.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_circle_is_spelled_in_part() {
        assert_eq!(spelled(&["a"], " -> "), "a -> a");
        assert_eq!(
            spelled(&["a", "b", "c", "d", "e", "f", "g", "h"], " in "),
            "a in b in c in d in e in f in g in h in a"
        );
        let names: Vec<String> = (0..20_000).map(|i| format!("t{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = "t0 -> t1 -> t2 -> t3 -> t4 -> t5 -> t6 -> t7 -> ... -> t0 (20000 in all)";
        assert_eq!(spelled(&names, " -> "), text);
    }

    #[test]
    fn circles_are_found_once_each() {
        assert_eq!(cycles(&[vec![1], vec![2], vec![0], vec![0]]), [vec![0, 1, 2]]);
        assert_eq!(cycles(&[vec![0], vec![0], vec![3], vec![2]]), [vec![0], vec![2, 3]]);
        assert_eq!(cycles(&[vec![], vec![0], vec![0, 1]]), Vec::<Vec<usize>>::new());
    }
}
