//! The positions of parts in the lists of a System.

macro_rules! index {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);
        impl $name {
            /// As an index into the System's list.
            #[inline]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}
index! {
    /// Position of a node in [`System::nodes`](crate::System::nodes).
    NodeId,
    /// Position of a task in [`System::tasks`](crate::System::tasks), which is the order of the file.
    TaskId,
    /// Position of an own strategy in [`System::strategies`](crate::System::strategies).
    StrategyId,
    /// Position of a component in [`System::components`](crate::System::components).
    ComponentId,
    /// Position of a flow in [`System::flows`](crate::System::flows).
    FlowId,
    /// Position of a port in [`System::ports`](crate::System::ports).
    PortId,
    /// Position of a network in [`System::networks`](crate::System::networks).
    NetworkId,
}
