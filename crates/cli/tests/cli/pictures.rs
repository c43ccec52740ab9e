//! Charts as files of pictures: their form, their size, and what they warn of.

use std::fs;

use resvg::tiny_skia::{Pixmap, PremultipliedColorU8};

use super::folder::{Folder, GOOD};

fn size_of_svg(folder: &Folder, width: &str) -> (f64, f64) {
    assert_eq!(folder.takt(&["chart", "good.takt", "-o", "x.svg", "--width", width]).status, 0);
    let text = fs::read_to_string(folder.path("x.svg")).expect("an SVG");
    let view = text.split("viewBox=\"0 0 ").nth(1).and_then(|rest| rest.split('"').next()).expect("a size");
    let (width, height) = view.split_once(' ').expect("two numbers");
    (width.parse().expect("a width"), height.parse().expect("a height"))
}

#[test]
fn a_png_has_the_width_asked_for_and_the_colours_of_the_svg() {
    let folder = Folder::new();
    for (asked, laid_out) in [("1600", "960"), ("960", "960"), ("300", "300")] {
        let ran = folder.takt(&["chart", "good.takt", "-o", "x.png", "--width", asked]);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
        let png = Pixmap::decode_png(&fs::read(folder.path("x.png")).expect("a file")).expect("a PNG");
        let (width, height) = size_of_svg(&folder, laid_out);
        let scale = f64::from(png.width()) / width;
        assert_eq!((png.width().to_string().as_str(), png.height()), (asked, (height * scale).ceil() as u32));
        let has = |r, g, b| {
            let colour = PremultipliedColorU8::from_rgba(r, g, b, 255).expect("a colour");
            png.pixels().contains(&colour)
        };
        assert!(has(255, 255, 255) && has(0x2f, 0x6f, 0xb3), "the paper, and a bar of CPU 0");
    }
}

#[test]
fn a_pdf_has_one_page_of_the_size_of_the_svg() {
    let folder = Folder::new();
    let ran = folder.takt(&["chart", "good.takt", "--format", "pdf", "-o", "x", "--width", "500"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    let pdf = String::from_utf8_lossy(&fs::read(folder.path("x")).expect("a file")).into_owned();
    assert!(pdf.starts_with("%PDF-") && pdf.trim_end().ends_with("%%EOF"));
    assert_eq!(pdf.matches("/Type /Page\n").count(), 1);
    let (width, height) = size_of_svg(&folder, "500");
    assert!(pdf.contains(&format!("/MediaBox [0 0 {width} {height}]")), "{width} {height}");
    assert!(pdf.contains("/FontDescriptor"), "text stays text");
}

#[test]
fn letters_that_the_font_lacks_are_told() {
    let folder = Folder::new();
    fs::write(folder.path("scripts.toml"), GOOD.replace("\"a\"", "\"λ-日本\"")).expect("a file");
    assert_eq!(folder.takt(&["sim", "scripts.toml", "-o", "scripts.takt"]).status, 0);
    let ran = folder.takt(&["chart", "scripts.takt", "-o", "x.png"]);
    assert_eq!(ran.status, 0);
    assert_eq!(ran.stderr, "takt: warning: the font of PNG and PDF lacks 日 本: boxes replace them; SVG shows them\n");
}
