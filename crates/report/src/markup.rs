//! Text that goes into XML and HTML.

use std::fmt;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Shows text so that it is only text, in content and in attributes alike. Characters that XML 1.0 forbids
/// become U+FFFD.
pub(crate) struct Esc<'a>(pub(crate) &'a str);

impl fmt::Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\t' | '\n' | '\r' => f.write_char(c)?,
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A coordinate with at most two decimals and no trailing zeros.
pub(crate) struct Px(pub(crate) f64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = (self.0 * 100.0).round() as i64;
        let (sign, hundredths) = (if hundredths < 0 { "-" } else { "" }, hundredths.unsigned_abs());
        match (hundredths / 100, hundredths % 100) {
            (whole, 0) => write!(f, "{sign}{whole}"),
            (whole, part) if part % 10 == 0 => write!(f, "{sign}{whole}.{}", part / 10),
            (whole, part) => write!(f, "{sign}{whole}.{part:02}"),
        }
    }
}

/// Columns that a text takes where letters have one width: two for the wide characters of East Asia, none for
/// combining ones.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Text cut to `columns_max` columns, with an ellipsis where something went.
pub(crate) fn clip(text: &str, columns_max: usize) -> String {
    clip_with(text, columns_max, "…")
}

/// Text cut to `columns_max` columns, with `more` at the end where something went.
pub(crate) fn clip_with(text: &str, columns_max: usize, more: &str) -> String {
    if columns(text) <= columns_max {
        return text.to_owned();
    }
    let more: String = more.chars().take(columns_max).collect();
    let mut left = columns_max - columns(&more).min(columns_max);
    let mut kept = String::new();
    for c in text.chars() {
        // A wide character that would stand half outside is left out.
        match left.checked_sub(c.width().unwrap_or(0)) {
            Some(rest) => left = rest,
            None => break,
        }
        kept.push(c);
    }
    kept + &more
}
