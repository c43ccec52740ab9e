//! Which component stands around which, and what the file gives of its server.

use takt_model::{Auto, ComponentId, Span, System};

/// A given value, in ns.
pub(crate) fn given(value: Auto<Span>) -> Option<u64> {
    value.given().map(Span::as_ns)
}

/// The components around a component. The innermost comes first.
pub(crate) fn ancestors(system: &System, id: ComponentId) -> impl Iterator<Item = ComponentId> {
    system.around(id).skip(1)
}

/// Whether `inner` is the component `id` or lies in it.
pub(crate) fn within(system: &System, inner: Option<ComponentId>, id: ComponentId) -> bool {
    inner.is_some_and(|inner| system.around(inner).any(|around| around == id))
}
