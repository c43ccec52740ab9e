//! Enums whose values have names.

/// Defines an enum, the list `ALL` of its values in order, and the `name` of each in files, texts and JSON.
#[macro_export]
macro_rules! named {
    ($(#[$attribute:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $value:ident $(= $number:literal)? => $text:literal,)*
    }) => {
        $(#[$attribute])*
        $vis enum $name { $($(#[$doc])* $value $(= $number)?,)* }

        impl $name {
            /// All of them, in order.
            $vis const ALL: [$name; [$($text),*].len()] = [$($name::$value),*];

            /// The name in files, texts and JSON.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self { $($name::$value => $text,)* }
            }
        }
    };
}
