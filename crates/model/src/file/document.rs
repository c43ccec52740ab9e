//! A System file that is edited and written back with its comments.

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, TableLike, Value};

use super::error::FileErrors;
use super::parse;
use crate::cpus::CpuSet;
use crate::strategy::Strategy;
use crate::system::{Auto, Bucket, ComponentId, FlowId, Network, NetworkId, NodeId, System, TableTask, TaskId};
use crate::time::Span;

/// A System file's text, comments and all, and the System that it says.
///
/// ```
/// use takt_model::file::{Document, Edit};
/// use takt_model::{CpuSet, TaskId};
///
/// let text = "takt = 1\n\n[[node]] # ours\nname = \"n\"\ncpus = 2\n\n\
///     [[task]]\nname = \"a\"\nperiod = \"1ms\" # fast\nwcet = \"1us\"\n";
/// let mut document = Document::parse(text, "a.toml")?;
/// document.apply(&[Edit::TaskCpus { task: TaskId(0), cpus: Some(CpuSet::range(1, 2)) }])?;
/// assert_eq!(document.text(), format!("{text}cpus = [1]\n"));
/// assert!(document.system().tasks[0].cpus.unwrap().contains(1));
/// # Ok::<(), takt_model::file::FileErrors>(())
/// ```
#[derive(Clone, Debug)]
pub struct Document {
    text: String,
    name: String,
    system: System,
}

/// A change of a System file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// Sets or removes a task's `cpus`.
    TaskCpus {
        /// The task.
        task: TaskId,
        /// The CPUs, `None` for all of its node.
        cpus: Option<CpuSet>,
    },
    /// Sets or removes a component's `server-cpus`.
    ServerCpus {
        /// The component.
        component: ComponentId,
        /// A CPU for each of its servers; empty for none.
        cpus: Vec<u32>,
    },
    /// Removes a task.
    RemoveTask {
        /// The task. The edits are made one after the other, so of several the last in the file comes first.
        task: TaskId,
    },
    /// Removes a component.
    RemoveComponent {
        /// The component; as with tasks, the last of those that go comes first.
        component: ComponentId,
    },
    /// Removes a flow.
    RemoveFlow {
        /// The flow; as with tasks.
        flow: FlowId,
    },
    /// Sets a component's `period` and `budget`.
    Component {
        /// The component.
        component: ComponentId,
        /// Its new period.
        period: Auto<Span>,
        /// Its new budget.
        budget: Auto<Span>,
    },
    /// Sets a flow's `hop-deadlines`.
    HopDeadlines {
        /// The flow.
        flow: FlowId,
        /// One a hop.
        deadlines: Vec<Span>,
    },
    /// Sets a node's `receive` or `send`.
    TableTask {
        /// The node.
        node: NodeId,
        /// Whether it is the receiving task.
        receives: bool,
        /// Its new values.
        task: TableTask,
    },
    /// Sets a network's `delay`.
    Delay {
        /// The network.
        network: NetworkId,
        /// At best and at worst.
        delay: (Span, Span),
    },
    /// Sets `link.bucket` of a node with a link.
    Bucket {
        /// The node.
        node: NodeId,
        /// Its token bucket.
        bucket: Bucket,
    },
    /// Sets some of a node's `costs`; those that are not named stay as they are.
    Costs {
        /// The node.
        node: NodeId,
        /// Keys of `costs` with their values.
        values: Vec<(&'static str, Span)>,
        /// Lines of a comment above it, without the `#`. Lines that begin with [`COSTS_COMMENT`]
        /// replace those of an earlier edit; inline tables have no room for any.
        comment: Vec<String>,
    },
    /// Sets a node's `strategy`.
    NodeStrategy {
        /// The node.
        node: NodeId,
        /// The strategy's name.
        name: String,
    },
    /// Sets a mode's `strategy`.
    ModeStrategy {
        /// The mode's place in the file.
        mode: usize,
        /// The strategy's name.
        name: String,
    },
    /// Adds a strategy after the others.
    AddStrategy {
        /// The strategy.
        strategy: Strategy,
    },
    /// Adds a network after the others.
    AddNetwork {
        /// The network, without ports.
        network: Network,
    },
}

/// How lines of a comment begin that [`Edit::Costs`] replaces.
pub const COSTS_COMMENT: &str = "takt doctor: ";

impl Document {
    /// Reads a System file.
    ///
    /// # Errors
    /// All that is wrong with the file.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, FileErrors> {
        let system = super::parse(text, file_name)?;
        Ok(Document { text: text.to_owned(), name: file_name.to_owned(), system })
    }

    /// The System of the file.
    #[must_use]
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The System of the file, for callers that no longer need the text.
    #[must_use]
    pub fn into_system(self) -> System {
        self.system
    }

    /// The file's text: what was parsed, byte for byte, until it is edited.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Makes all `edits`, or none. Comments, order and everything else stay as they are.
    ///
    /// # Errors
    /// The errors of the file after the edits (a budget above its period, say), or an edit of a
    /// missing part. The document is then unchanged. Values of loaded traces must be loaded anew.
    pub fn apply(&mut self, edits: &[Edit]) -> Result<(), FileErrors> {
        if edits.is_empty() {
            return Ok(());
        }
        let mut document =
            self.text.parse::<DocumentMut>().map_err(|error| FileErrors::whole(&self.name, error.message()))?;
        for edit in edits {
            match edit {
                Edit::TaskCpus { task, cpus } => {
                    let table = self.table(&mut document, "task", task.index())?;
                    match cpus {
                        Some(cpus) => {
                            set(table, "cpus", cpus.iter().map(i64::from).collect::<toml_edit::Array>().into())
                        }
                        None => drop(table.remove("cpus")),
                    }
                }
                Edit::ServerCpus { component, cpus } => {
                    let table = self.table(&mut document, "component", component.index())?;
                    if cpus.is_empty() {
                        drop(table.remove("server-cpus"));
                    } else {
                        let cpus = cpus.iter().map(|cpu| i64::from(*cpu)).collect::<toml_edit::Array>();
                        set(table, "server-cpus", cpus.into());
                    }
                }
                Edit::RemoveTask { task } => {
                    self.remove(&mut document, "task", task.index())?;
                }
                Edit::RemoveComponent { component } => {
                    self.remove(&mut document, "component", component.index())?;
                }
                Edit::RemoveFlow { flow } => {
                    self.remove(&mut document, "flow", flow.index())?;
                }
                Edit::Component { component, period, budget } => {
                    let table = self.table(&mut document, "component", component.index())?;
                    set(table, "period", auto(*period));
                    set(table, "budget", auto(*budget));
                }
                Edit::HopDeadlines { flow, deadlines } => {
                    let table = self.table(&mut document, "flow", flow.index())?;
                    let spans: toml_edit::Array = deadlines.iter().map(|span| span.to_string()).collect();
                    set(table, "hop-deadlines", spans.into());
                }
                Edit::TableTask { node, receives, task } => {
                    let table = self.table(&mut document, "node", node.index())?;
                    let parts = [("period", Some(task.period)), ("wcet", Some(task.wcet)), ("cost", task.cost)];
                    let parts = parts.iter().filter_map(|(key, span)| Some((*key, (*span)?.to_string())));
                    let inline: toml_edit::InlineTable = parts.collect();
                    set(table, if *receives { "receive" } else { "send" }, inline.into());
                }
                Edit::Delay { network, delay } => {
                    let table = self.table(&mut document, "network", network.index())?;
                    set(table, "delay", spans(*delay));
                }
                Edit::Bucket { node, bucket } => {
                    let table = self.table(&mut document, "node", node.index())?;
                    let link = table.get_mut("link").and_then(Item::as_table_like_mut);
                    let link = link.ok_or_else(|| {
                        FileErrors::whole(&self.name, format!("node {} has no link", node.index() + 1))
                    })?;
                    let parts = [("burst", bucket.burst.to_string()), ("rate", bucket.rate.to_string())];
                    let inline: toml_edit::InlineTable = parts.into_iter().collect();
                    set(link, "bucket", inline.into());
                }
                Edit::Costs { node, values, comment } => self.set_costs(&mut document, *node, values, comment)?,
                Edit::NodeStrategy { node, name } => {
                    self.write_default_node(&mut document, *node);
                    let table = self.table(&mut document, "node", node.index())?;
                    set(table, "strategy", name.as_str().into());
                }
                Edit::ModeStrategy { mode, name } => {
                    let table = self.table(&mut document, "mode", *mode)?;
                    set(table, "strategy", name.as_str().into());
                }
                Edit::AddStrategy { strategy } => self.add_strategy(&mut document, strategy)?,
                Edit::AddNetwork { network } => self.add_network(&mut document, network)?,
            }
        }
        // The writer of TOML ends lines with \n alone and drops a byte order mark; a file from elsewhere keeps its own.
        let mut text = document.to_string();
        if self.text.contains("\r\n") {
            text = text.replace("\r\n", "\n").replace('\n', "\r\n");
        }
        if self.text.starts_with('\u{feff}') && !text.starts_with('\u{feff}') {
            text.insert(0, '\u{feff}');
        }
        self.system = parse(&text, &self.name)?;
        self.text = text;
        Ok(())
    }

    fn remove(&self, document: &mut DocumentMut, key: &str, index: usize) -> Result<(), FileErrors> {
        self.table(document, key, index)?;
        match document.get_mut(key) {
            Some(Item::ArrayOfTables(tables)) => drop(tables.remove(index)),
            Some(Item::Value(Value::Array(values))) => drop(values.remove(index)),
            _ => {}
        }
        Ok(())
    }

    fn set_costs(
        &self,
        document: &mut DocumentMut,
        node: NodeId,
        values: &[(&'static str, Span)],
        comment: &[String],
    ) -> Result<(), FileErrors> {
        self.write_default_node(document, node);
        let roomy = matches!(document.get("node"), Some(Item::ArrayOfTables(_)));
        let table = self.table(document, "node", node.index())?;
        match table.get_mut("costs").and_then(Item::as_table_like_mut) {
            Some(costs) => values.iter().for_each(|(key, span)| set(costs, key, span.to_string().into())),
            None => {
                let inline: toml_edit::InlineTable =
                    values.iter().map(|(key, span)| (*key, span.to_string())).collect();
                set(table, "costs", inline.into());
            }
        }
        let lines = |old: Option<&str>| {
            let mut lines: Vec<String> = old.unwrap_or_default().split_inclusive('\n').map(str::to_owned).collect();
            lines.retain(|line| !line.trim_start_matches([' ', '\t', '#']).starts_with(COSTS_COMMENT));
            let own: String = comment.iter().map(|line| format!("# {line}\n")).collect();
            // Text before the key on its own line stays last.
            let indent = lines.pop_if(|line| !line.ends_with('\n')).unwrap_or_default();
            lines.concat() + &own + &indent
        };
        if let Some(Item::Table(costs)) = table.get_mut("costs") {
            if !costs.is_dotted() {
                let prefix = lines(costs.decor().prefix().and_then(|prefix| prefix.as_str()));
                costs.decor_mut().set_prefix(prefix);
            }
        } else if let Some(mut key) = table.key_mut("costs").filter(|_| roomy) {
            let prefix = lines(key.leaf_decor().prefix().and_then(|prefix| prefix.as_str()));
            key.leaf_decor_mut().set_prefix(prefix);
        }
        Ok(())
    }

    /// Writes the node that a file without nodes has by default.
    fn write_default_node(&self, document: &mut DocumentMut, node: NodeId) {
        if document.get("node").is_none()
            && let Some(only) = self.system.nodes.get(node.index())
        {
            let mut table = Table::new();
            table.insert("name", Item::Value(only.name.as_str().into()));
            table.decor_mut().set_prefix("\n");
            let mut tables = ArrayOfTables::new();
            tables.push(table);
            document.insert("node", Item::ArrayOfTables(tables));
        }
    }

    fn add_strategy(&self, document: &mut DocumentMut, strategy: &Strategy) -> Result<(), FileErrors> {
        let parsed = super::write::strategy_keys(strategy).parse::<DocumentMut>();
        let parsed = parsed.map_err(|error| FileErrors::whole(&self.name, error.to_string()))?;
        let mut table = parsed.as_table().clone();
        table.decor_mut().set_prefix("\n");
        match document.get_mut("strategy") {
            Some(Item::Value(Value::Array(array))) => array.push(table.into_inline_table()),
            Some(Item::ArrayOfTables(tables)) => tables.push(table),
            _ => {
                let mut tables = ArrayOfTables::new();
                tables.push(table);
                document.insert("strategy", Item::ArrayOfTables(tables));
            }
        }
        Ok(())
    }

    fn add_network(&self, document: &mut DocumentMut, network: &Network) -> Result<(), FileErrors> {
        let mut table = Table::new();
        for (key, node) in [("from", network.from), ("to", network.to)] {
            let Some(node) = node else { continue };
            let spec = self.system.nodes.get(node.index());
            let spec = spec
                .ok_or_else(|| FileErrors::whole(&self.name, format!("the file has no node {}", node.index() + 1)))?;
            table.insert(key, Item::Value(spec.name.as_str().into()));
        }
        match network.delay {
            Auto::Auto => drop(table.insert("delay", Item::Value("auto".into()))),
            Auto::Value(delay) => drop(table.insert("delay", Item::Value(spans(delay)))),
        }
        match document.get_mut("network") {
            Some(Item::Value(Value::Array(array))) => array.push(table.into_inline_table()),
            Some(Item::ArrayOfTables(tables)) => tables.push(table),
            _ => {
                let mut tables = ArrayOfTables::new();
                table.decor_mut().set_prefix("\n");
                tables.push(table);
                document.insert("network", Item::ArrayOfTables(tables));
            }
        }
        Ok(())
    }

    fn table<'a>(
        &self,
        document: &'a mut DocumentMut,
        key: &str,
        index: usize,
    ) -> Result<&'a mut dyn TableLike, FileErrors> {
        let table: Option<&mut dyn TableLike> = match document.get_mut(key) {
            Some(Item::ArrayOfTables(tables)) => tables.get_mut(index).map(|table| table as &mut dyn TableLike),
            Some(Item::Value(Value::Array(array))) => {
                array.get_mut(index).and_then(Value::as_inline_table_mut).map(|table| table as &mut dyn TableLike)
            }
            _ => None,
        };
        table.ok_or_else(|| FileErrors::whole(&self.name, format!("the file has no {key} {}", index + 1)))
    }
}

fn spans((first, second): (Span, Span)) -> Value {
    [first, second].iter().map(Span::to_string).collect::<toml_edit::Array>().into()
}

fn auto(value: Auto<Span>) -> Value {
    match value {
        Auto::Auto => "auto".into(),
        Auto::Value(span) => span.to_string().into(),
    }
}

/// Sets a key and keeps the blanks and the comment around its old value.
fn set(table: &mut dyn TableLike, key: &str, mut value: Value) {
    match table.get_mut(key) {
        Some(item) => {
            if let Some(old) = item.as_value() {
                *value.decor_mut() = old.decor().clone();
            }
            *item = Item::Value(value);
        }
        None => {
            // In an inline table the blank before the closing brace belongs to the last value; it moves to the new one.
            let last = table.iter_mut().last().and_then(|(_, item)| item.as_value_mut());
            if let Some(decor) = last.map(Value::decor_mut) {
                let blank = decor.suffix().and_then(|suffix| suffix.as_str()).filter(|suffix| suffix.trim().is_empty());
                if let Some(blank) = blank.map(str::to_owned) {
                    decor.set_suffix("");
                    value.decor_mut().set_prefix(" ");
                    value.decor_mut().set_suffix(blank);
                }
            }
            table.insert(key, Item::Value(value));
        }
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
