//! Kernel modules in the order in which they can be loaded.

use std::collections::BTreeMap;

/// The names of the modules that an unpacked module needs, from its section `.modinfo`.
#[must_use]
pub fn depends(module: &[u8]) -> Vec<String> {
    let info = crate::kernel::section(module, ".modinfo").unwrap_or_default();
    let line = info.split(|&byte| byte == 0).find_map(|line| line.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(plain).collect()
}

/// A module's name as the kernel writes it: `-` and `_` mean the same.
#[must_use]
pub fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Each module after those that it needs, and each once. `needs` has all of them.
#[must_use]
pub fn order(wanted: &[String], needs: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    fn visit(name: &str, needs: &BTreeMap<String, Vec<String>>, begun: &mut Vec<String>, order: &mut Vec<String>) {
        if begun.iter().any(|other| other == name) {
            return;
        }
        begun.push(name.to_owned());
        for other in needs.get(name).into_iter().flatten() {
            visit(other, needs, begun, order);
        }
        order.push(name.to_owned());
    }
    let (mut begun, mut order) = (Vec::new(), Vec::new());
    for name in wanted {
        visit(name, needs, &mut begun, &mut order);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_after_those_that_it_needs() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let needs = BTreeMap::from([
            ("virtio_net".to_owned(), names(&["net_failover"])),
            ("net_failover".to_owned(), names(&["failover"])),
            // A circle does not occur, and does no harm.
            ("failover".to_owned(), names(&["virtio_net"])),
        ]);
        let order = order(&names(&["virtio_net", "e1000", "failover"]), &needs);
        assert_eq!(order, ["failover", "net_failover", "virtio_net", "e1000"]);
        assert_eq!(depends(b"no module"), Vec::<String>::new());
    }
}
