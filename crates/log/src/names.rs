//! Enums whose values have names.

/// Defines an enum, the list `ALL` of its values in order, and the `name` of each in texts and JSON.
macro_rules! named {
    ($(#[$attribute:meta])* pub enum $name:ident {
        $($(#[$doc:meta])* $value:ident $(= $number:literal)? => $text:literal,)*
    }) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$doc])* $value $(= $number)?,)* }

        impl $name {
            /// All of them, in order.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$value),*];

            /// The name in texts and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($name::$value => $text,)* }
            }
        }
    };
}

pub(crate) use named;
