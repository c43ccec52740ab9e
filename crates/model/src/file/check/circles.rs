//! Circles in graphs: of components within one another, of tasks that wait for one another.

/// Circles in a graph of edges, each node in at most one of those that come back; linear, without recursion.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_once_each() {
        assert_eq!(cycles(&[vec![1], vec![2], vec![0], vec![0]]), [vec![0, 1, 2]]);
        assert_eq!(cycles(&[vec![0], vec![0], vec![3], vec![2]]), [vec![0], vec![2, 3]]);
        assert_eq!(cycles(&[vec![], vec![0], vec![0, 1]]), Vec::<Vec<usize>>::new());
    }
}
