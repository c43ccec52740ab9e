//! takt-run: under construction.
