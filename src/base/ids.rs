//! Dense ids. Each names a place in one table, so that the hot path indexes instead of hashing.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub(crate) u32);

        impl $name {
            /// The id as an index into its table.
            pub(crate) const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A request's stable identity: its place in the workload, from 0.
    RequestId
}
id! {
    /// A request's recycled place in one engine's arena.
    SlotId
}
id! {
    /// An engine's place in the cluster.
    EngineId
}
