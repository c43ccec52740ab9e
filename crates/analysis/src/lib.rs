//! takt-analysis: under construction.
