//! takt-report: under construction.
