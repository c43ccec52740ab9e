//! takt-linux: under construction.
