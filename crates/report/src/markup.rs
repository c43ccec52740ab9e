//! Text that goes into XML and HTML.

use std::fmt::{self, Write as _};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Shows text so that it is only text, in content and in attributes alike. Characters that XML 1.0 forbids
/// become U+FFFD.
pub(crate) struct Esc<'a>(pub(crate) &'a str);

impl fmt::Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

#[derive(Default)]
pub(crate) struct Grid {
    lines: String,
    labels: String,
}

impl Grid {
    pub(crate) fn line(&mut self, from: (f64, f64), to: fmt::Arguments<'_>) {
        let _ = write!(self.lines, "M{} {}{to}", Px(from.0), Px(from.1));
    }

    pub(crate) fn label(&mut self, at: (f64, f64), anchor: &str, text: impl fmt::Display) {
        let (x, y) = (Px(at.0), Px(at.1));
        let _ = write!(self.labels, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    /// Where labels do not count from zero.
    pub(crate) fn origin(&mut self, y: f64, text: &str) {
        let _ = write!(self.labels, "<text x=\"8\" y=\"{}\">{}</text>", Px(y), Esc(text));
    }

    pub(crate) fn svg(&self, end: &str) -> String {
        let Grid { lines, labels } = self;
        format!("<path class=\"grid\" d=\"{lines}\"/>{end}<g class=\"ticks\">{labels}</g>{end}")
    }
}

/// The names of both axes: below the middle of the horizontal one, and turned before the vertical one.
pub(crate) fn axis_names(out: &mut String, x: (f64, f64, &str), y: (f64, f64, &str)) {
    let _ = writeln!(
        out,
        "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
         <text class=\"axis\" x=\"{l}\" y=\"{m}\" text-anchor=\"middle\" transform=\"rotate(-90 {l} {m})\">{}</text>",
        Px(x.0),
        Px(x.1),
        Esc(x.2),
        Esc(y.2),
        l = Px(y.0),
        m = Px(y.1),
    );
}

/// A page up to its lead: it needs nothing from outside and no script.
pub(crate) fn page(maker: &str, title: &str, kind: &str, styles: &[&str], lead: &str) -> String {
    let (maker, title) = (Esc(maker), Esc(title));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"/>\n<meta name=\"generator\" content=\"{maker}\"/>\n\
         <title>{title} - {kind}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{title}</h1>\n\
         <p class=\"lead\">{}</p>\n",
        styles.concat(),
        Esc(lead),
    )
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
