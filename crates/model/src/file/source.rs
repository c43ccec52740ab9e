//! Where the parts of a System stand in its file.

use std::collections::BTreeSet;

use super::check::{Part, Places};
use super::read::{Fields, Val};
use super::values::is_switch;

/// The places of a System's parts in its file.
pub(super) struct Source {
    pub(super) file: Fields,
    /// Keys whose names lead nowhere.
    pub(super) dangling: BTreeSet<(Part, &'static str)>,
}

impl Source {
    fn fields(&self, part: Part) -> Option<&Fields> {
        let nth = |key: &str, index: usize| match self.file.list(key).get(index) {
            Some((Val::Table(fields), _)) => Some(fields),
            _ => None,
        };
        match part {
            Part::File => Some(&self.file),
            Part::Node(i) => nth("node", i),
            Part::Strategy(i) => nth("strategy", i),
            Part::Level(i, j) => nth("strategy", i)?.tables("level").nth(j),
            Part::Mode(i) => self.file.tables("mode").filter(|mode| !is_switch(mode)).nth(i),
            Part::Switch(i) => self.file.tables("mode").filter(|mode| is_switch(mode)).nth(i),
            Part::Component(i) => nth("component", i),
            Part::Task(i) => nth("task", i),
            Part::Flow(i) => nth("flow", i),
            Part::Port(i) => nth("port", i),
            Part::Network(i) => nth("network", i),
        }
    }
}

impl Places for Source {
    fn at(&self, part: Part, path: &'static str, index: Option<usize>) -> Option<usize> {
        let mut fields = self.fields(part)?;
        let mut at = fields.at;
        for key in path.split('.').filter(|key| !key.is_empty()) {
            let Some(field) = fields.field(key) else { return Some(at) };
            at = field.at;
            match (&field.value, index) {
                (Some(Val::Table(inner)), _) => fields = inner,
                (Some(Val::List(list)), Some(index)) => return list.get(index).map(|(_, at)| *at).or(Some(at)),
                (Some(Val::Map(map)), Some(index)) => return map.get(index).map(|(_, _, at)| *at).or(Some(at)),
                _ => return Some(at),
            }
        }
        Some(at)
    }

    fn is_bad(&self, part: Part, key: &'static str) -> bool {
        let first = key.split('.').next().unwrap_or(key);
        if let (Part::Task(_), "period") = (part, key) {
            let lacks = |fields: &Fields| fields.field("period").is_none() && fields.field("after").is_none();
            if self.fields(part).is_some_and(lacks) {
                return true;
            }
        }
        self.dangling.contains(&(part, first))
            || self.fields(part).is_some_and(|fields| {
                let mut fields = fields;
                for key in key.split('.') {
                    match fields.field(key) {
                        Some(field) => match &field.value {
                            None => return true,
                            Some(Val::Table(inner)) => fields = inner,
                            Some(_) => return false,
                        },
                        None => return fields.grammar.keys.iter().any(|k| k.name == key && k.required),
                    }
                }
                false
            })
    }
}
