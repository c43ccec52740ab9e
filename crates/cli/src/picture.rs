//! Charts as PNG and PDF, drawn from their SVG with the letters of a font that the command carries.

use std::collections::BTreeSet;
use std::sync::Arc;

use svg2pdf::usvg::{self, fontdb};
use takt_report::css_without_variables;

use crate::failure::Failure;
use crate::output::note;

/// Go Regular: Latin, Greek and Cyrillic. Its licence stands beside it.
const FONT: &[u8] = include_bytes!("../fonts/Go-Regular.ttf");
/// Pixels of one PNG; each takes four bytes of memory.
const PNG_PIXELS_MAX: u64 = 64 << 20;
/// Letters in a message.
const LETTERS_NAMED: usize = 20;

/// An SVG without a style sheet, read for drawing.
pub(crate) struct Picture(usvg::Tree);

impl Picture {
    pub(crate) fn new(svg: &str) -> Result<Picture, Failure> {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(FONT.to_vec());
        fonts.set_sans_serif_family("Go");
        let options = usvg::Options {
            fontdb: Arc::new(fonts),
            style_sheet: Some(css_without_variables()),
            ..usvg::Options::default()
        };
        usvg::Tree::from_str(svg, &options).map(Picture).map_err(|error| bug(&error))
    }

    pub(crate) fn warn_of_boxes(&self) {
        let mut missing = BTreeSet::new();
        missing_letters(self.0.root(), &mut missing);
        if !missing.is_empty() {
            let letters: Vec<String> = missing.into_iter().take(LETTERS_NAMED).collect();
            let letters = letters.join(" ");
            note(format_args!("warning: the font of PNG and PDF lacks {letters}: boxes replace them; SVG shows them"));
        }
    }

    /// A PNG on white of exactly `width` pixels.
    pub(crate) fn png(&self, width: u32) -> Result<Vec<u8>, Failure> {
        let size = self.0.size();
        let scale = width as f32 / size.width();
        let height = (size.height() * scale).ceil() as u32;
        if u64::from(width) * u64::from(height) > PNG_PIXELS_MAX {
            return Err(Failure::input(format_args!(
                "the PNG would have {width} x {height} pixels, more than {PNG_PIXELS_MAX} (PNG_PIXELS_MAX); give a \
                 smaller --width, fewer tasks (--task), or write PDF"
            )));
        }
        let mut pixels = resvg::tiny_skia::Pixmap::new(width, height).ok_or_else(|| bug(&"no pixels"))?;
        pixels.fill(resvg::tiny_skia::Color::WHITE);
        resvg::render(&self.0, usvg::Transform::from_scale(scale, scale), &mut pixels.as_mut());
        pixels.encode_png().map_err(|error| bug(&error))
    }

    /// A PDF of one page, a point for each pixel of the SVG.
    pub(crate) fn pdf(&self) -> Result<Vec<u8>, Failure> {
        svg2pdf::to_pdf(&self.0, svg2pdf::ConversionOptions::default(), svg2pdf::PageOptions::default())
            .map_err(|error| bug(&error))
    }
}

/// Collects the letters that the font lacks. They are drawn as boxes.
fn missing_letters(group: &usvg::Group, missing: &mut BTreeSet<String>) {
    for node in group.children() {
        match node {
            usvg::Node::Group(inner) => missing_letters(inner, missing),
            usvg::Node::Text(text) => {
                let glyphs = text.layouted().iter().flat_map(|span| &span.positioned_glyphs);
                missing.extend(glyphs.filter(|glyph| glyph.id.0 == 0).map(|glyph| glyph.text.clone()));
            }
            usvg::Node::Path(_) | usvg::Node::Image(_) => {}
        }
    }
}

fn bug(error: &dyn std::fmt::Display) -> Failure {
    Failure::trouble(format_args!(
        "this chart cannot be drawn: {error}; write SVG instead (a bug of takt: please report it)"
    ))
}
