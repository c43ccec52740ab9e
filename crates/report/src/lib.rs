//! Pictures and pages of what should happen and what happened: Gantt charts as SVG and for the terminal,
//! an HTML report, exports for other tools, and metrics.
//!
//! Everything is a pure function from events, definitions, statistics and verdicts to text or bytes. A
//! log of any length is read once, in bounded memory: [`GanttBuilder`] and the exports are
//! [`takt_log::Sink`]s.
//!
//! ```
//! use takt_log::{Event, JobKey, Sink};
//! use takt_model::{Builtin, Span, System, Task, TaskId, Time};
//! use takt_report::{GanttBuilder, GanttOptions, Scene, TextOptions, text};
//!
//! let task = Task::periodic("a", Span::from_ms(10), Span::from_ms(4));
//! let system = System::local(1, Builtin::Edf, vec![task]);
//! let (end, job) = (Time::from_ns(10_000_000), JobKey { task: TaskId(0), number: 0 });
//! let mut builder = GanttBuilder::new(Scene::of(&system), GanttOptions::until(end));
//! builder.event(0, Time::ZERO, &Event::Release { job, arrival: Time::ZERO, parent: None });
//! builder.event(0, Time::ZERO, &Event::Start { job, cpu: 0 });
//! builder.event(0, Time::from_ns(4_000_000), &Event::Complete { job, cpu: 0 });
//! let chart = text(&builder.finish(end), &TextOptions { width: 45, unicode: false, color: false });
//! assert!(chart.contains("a    ################\n"), "{chart}");
//! ```

pub mod axis;
mod css;
pub mod csv;
pub mod curves;
pub mod experiment;
pub mod figure;
pub mod gantt;
pub mod golden;
pub mod html;
pub mod jobs;
mod lane;
pub mod live_hops;
mod markup;
mod messages;
pub mod parquet;
pub mod perfetto;
mod plot;
pub mod prometheus;
pub mod scene;
pub mod scripts;
pub mod source;
pub mod svg;
pub mod text;

pub use css::css_without_variables;
pub use csv::JobCsv;
pub use curves::{Curve, CurvePoint, Curves, StudyPage};
pub use experiment::{ClaimLine, ExperimentPage, PageTable, Picture};
pub use figure::{Figure, Form, Series};
pub use gantt::{Activity, Gantt, GanttBuilder, GanttOptions, Mark, MarkKind, Row, Segment, Window};
pub use html::{ReportInput, findings, html, is_no_proof};
pub use jobs::{JobRecord, JobTracker, Outcome};
pub use lane::{Charging, Lane, Level};
pub use live_hops::LiveHop;
pub use messages::{Arrow, Fate};
pub use perfetto::PerfettoWriter;
pub use prometheus::prometheus;
pub use scene::{Scene, SceneInterrupt, SceneNode, SceneTask};
pub use scripts::{Keeper, Script, script};
pub use source::{Source, SourceBuilder};
pub use svg::{CHART_CSS, Rows, SvgOptions, svg};
pub use text::{TextOptions, text};
