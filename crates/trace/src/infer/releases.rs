//! Files of releases: a line per job, its release in nanoseconds, and perhaps the window that it
//! lies in.

use takt_model::{Span, Time};
use thiserror::Error;

/// A line that is no release.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{line}: {what}; a line is RELEASE or RELEASE,EARLIEST,LATEST in whole nanoseconds, in the order of releases")]
pub struct ReleasesError {
    /// Its number, from 1.
    pub line: usize,
    /// The fault.
    pub what: String,
}

/// Reads releases: lines `release` or `release,earliest,latest` (`;` and tabs separate as well),
/// whole nanoseconds of any clock that only goes forward. Empty lines, what stands after `#`, and a
/// first line of names are skipped; so are further columns. Each release comes with the width of
/// its window.
///
/// # Errors
/// The first line that is no release, lies outside of its window, or goes back in time.
pub fn parse_releases(text: &str) -> Result<Vec<(Time, Span)>, ReleasesError> {
    let mut releases: Vec<(Time, Span)> = Vec::new();
    let mut first = true;
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let error = |what: String| ReleasesError { line: at + 1, what };
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut cells = line.split([',', ';', '\t']).map(|cell| cell.trim().trim_matches('"').trim());
        let mut number = || cells.next().filter(|cell| !cell.is_empty()).map(|cell| (cell, whole(cell)));
        let release = match number() {
            Some((_, Some(release))) => release,
            _ if std::mem::take(&mut first) => continue,
            cell => {
                let cell = takt_model::file::one_line(cell.map_or("", |(cell, _)| cell)).into_owned();
                return Err(error(format!("\"{cell}\" is no number of nanoseconds")));
            }
        };
        first = false;
        let window = match (number(), number()) {
            (Some((_, Some(earliest))), Some((_, Some(latest)))) if earliest <= release && release <= latest => {
                latest - earliest
            }
            (Some((_, Some(earliest))), Some((_, Some(latest)))) => {
                return Err(error(format!("the release {release} does not lie in its window, {earliest} to {latest}")));
            }
            // Other columns, or none.
            _ => 0,
        };
        if let Some((before, _)) = releases.last()
            && before.as_ns() > release
        {
            return Err(error(format!("the release {release} comes before {}, which stands above it", before.as_ns())));
        }
        releases.push((Time::from_ns(release), Span::from_ns(window)));
    }
    Ok(releases)
}

/// A number of nanoseconds that differences of cannot overflow.
fn whole(cell: &str) -> Option<u64> {
    cell.parse().ok().filter(|ns| *ns <= i64::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(u64, u64)>, String> {
        let releases = parse_releases(text).map_err(|error| error.to_string())?;
        Ok(releases.into_iter().map(|(at, window)| (at.as_ns(), window.as_ns())).collect())
    }

    #[test]
    fn lines_are_releases_with_and_without_windows() {
        let text = "\u{feff}release_ns,window_lo_ns,window_hi_ns\r\n# made by hand\n100,90,110\n\
             \n 200 ; 200 ; 203 # late\n300\n\"400\",x\n";
        assert_eq!(read(text), Ok(vec![(100, 20), (200, 3), (300, 0), (400, 0)]));
        assert_eq!(read(""), Ok(vec![]));
    }

    #[test]
    fn malformed_releases_are_named() {
        let tail = "; a line is RELEASE or RELEASE,EARLIEST,LATEST in whole nanoseconds, in the order of releases";
        let told = |text: &str| read(text).unwrap_err().replace(tail, "");
        assert_eq!(told("5\nx\n"), "2: \"x\" is no number of nanoseconds");
        assert_eq!(told("a\nb\n"), "2: \"b\" is no number of nanoseconds");
        assert_eq!(told("5\n1.5\n"), "2: \"1.5\" is no number of nanoseconds");
        assert_eq!(told("5\n4\n"), "2: the release 4 comes before 5, which stands above it");
        assert_eq!(told("5,6,9\n"), "1: the release 5 does not lie in its window, 6 to 9");
        assert_eq!(told("1\n18446744073709551615\n"), "2: \"18446744073709551615\" is no number of nanoseconds");
    }
}
