//! The pages that start real-time threads; docs.rs says how a page is read.

mod pages;

#[test]
fn every_command_of_live_pages_does_what_is_shown() {
    pages::run_pages(true);
}
