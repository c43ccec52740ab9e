//! takt-policy: under construction.
