//! takt-sim: under construction.
