//! Debian's packages with kernels, and the private apt that finds them.

use std::fmt::Write as _;

/// A kernel by its purpose; its newest version is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// With PREEMPT_RT.
    Rt,
    /// Debian's ordinary one.
    Plain,
}

impl Flavour {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Rt => "rt",
            Flavour::Plain => "plain",
        }
    }

    /// The flavour of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Flavour> {
        [Flavour::Rt, Flavour::Plain].into_iter().find(|flavour| flavour.name() == name)
    }

    /// Whether a release, such as `7.3.4+deb13-rt-amd64`, is of this flavour.
    fn has(self, release: &str) -> bool {
        let base = release.strip_suffix("-amd64");
        match self {
            Flavour::Rt => base.is_some_and(|base| base.ends_with("-rt")),
            Flavour::Plain => base.is_some_and(|base| !base.ends_with("-rt") && !base.ends_with("-cloud")),
        }
    }
}

/// The package with the kernel of a release, and the one with its modules.
#[must_use]
pub fn packages(release: &str) -> [String; 2] {
    [format!("linux-binary-{release}"), format!("linux-modules-{release}")]
}

/// The releases of a flavour among names of packages, the newest first.
#[must_use]
pub fn releases(names: &str, flavour: Flavour) -> Vec<String> {
    let all: Vec<&str> = names.lines().map(str::trim).collect();
    let mut found: Vec<String> = all
        .iter()
        .filter_map(|name| name.strip_prefix("linux-binary-"))
        .filter(|release| release.starts_with(|first: char| first.is_ascii_digit()) && flavour.has(release))
        .filter(|release| all.contains(&packages(release)[1].as_str()))
        .map(str::to_owned)
        .collect();
    found.sort_by_key(|release| std::cmp::Reverse(numbers(release)));
    found.dedup();
    found
}

fn numbers(release: &str) -> Vec<u64> {
    release.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The archive in lists of sources, in either format of apt: the first that has the component main.
///
/// Security archives are left out, because they do not have all suites.
#[must_use]
pub fn mirror(sources: &str) -> Option<String> {
    let archive = |word: &str| {
        let address = word.split_once("://").map_or("", |(_, address)| address).trim_end_matches('/');
        address.ends_with("/debian").then(|| word.trim_end_matches('/').to_owned())
    };
    sources
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"))
        .find_map(|line| line.split_whitespace().find_map(archive))
}

/// A private apt below a folder: it knows no installed package, and changes no other file.
pub struct PrivateApt<'a> {
    /// The folder, absolute.
    pub folder: &'a str,
    /// The archive.
    pub mirror: &'a str,
    /// The suite, such as `trixie-backports`.
    pub suite: &'a str,
    /// The key ring that signs the archive.
    pub keys: &'a str,
}

impl PrivateApt<'_> {
    /// The text of its configuration.
    #[must_use]
    pub fn configuration(&self) -> String {
        let mut text = String::new();
        let folder = self.folder;
        for (key, value) in [
            ("Dir", "/"),
            ("Dir::State", &format!("{folder}/state")),
            ("Dir::State::lists", &format!("{folder}/state/lists")),
            ("Dir::State::status", &format!("{folder}/state/status")),
            ("Dir::Cache", &format!("{folder}/cache")),
            ("Dir::Cache::archives", &format!("{folder}/cache/archives")),
            ("Dir::Etc::sourcelist", &format!("{folder}/sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null"),
            ("APT::Architecture", "amd64"),
            ("APT::Architectures", "amd64"),
            ("APT::Sandbox::User", ""),
            ("APT::Update::Post-Invoke-Success", ""),
            ("Acquire::Languages", "none"),
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{key} \"{value}\";");
        }
        text
    }

    /// The text of its list of sources. Backports do not have all packages, so the suite below
    /// stands there as well.
    #[must_use]
    pub fn sources(&self) -> String {
        let suites = [Some(self.suite), self.suite.strip_suffix("-backports")];
        let line = |suite| format!("deb [signed-by={}] {} {suite} main\n", self.keys, self.mirror);
        suites.into_iter().flatten().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_with_modules_comes_first() {
        let names = "linux-binary-7.2.9+deb13-rt-amd64\nlinux-modules-7.2.9+deb13-rt-amd64\n\
                     linux-binary-7.2.11+deb13-rt-amd64\nlinux-modules-7.2.11+deb13-rt-amd64\n\
                     linux-binary-7.3.4+deb13-rt-amd64\n\
                     linux-binary-7.2.9+deb13-amd64\nlinux-modules-7.2.9+deb13-amd64\n\
                     linux-binary-7.2.9+deb13-cloud-amd64\nlinux-modules-7.2.9+deb13-cloud-amd64\n\
                     linux-binary-unsigned-7.3.4+deb13-rt-amd64\nlinux-modules-rt-amd64\n";
        assert_eq!(releases(names, Flavour::Rt), ["7.2.11+deb13-rt-amd64", "7.2.9+deb13-rt-amd64"]);
        assert_eq!(releases(names, Flavour::Plain), ["7.2.9+deb13-amd64"]);
    }

    #[test]
    fn the_archive_is_found_in_both_formats() {
        let old = "# deb http://no.example/debian x main\ndeb [arch=amd64] http://a.example/debian/ bookworm main\n";
        assert_eq!(mirror(old).as_deref(), Some("http://a.example/debian"));
        let new = "Types: deb\nURIs: https://b.example/debian\nSuites: bookworm\n";
        assert_eq!(mirror(new).as_deref(), Some("https://b.example/debian"));
        assert_eq!(mirror("deb http://a.example/debian-security bookworm main\n"), None);
        assert_eq!(mirror("deb https://c.example/node_20.x nodistro main\n"), None);
    }

    #[test]
    fn backports_bring_their_suite() {
        let apt = PrivateApt { folder: "/c", mirror: "http://a/debian", suite: "trixie-backports", keys: "/k" };
        let lines = "deb [signed-by=/k] http://a/debian trixie-backports main\n\
                     deb [signed-by=/k] http://a/debian trixie main\n";
        assert_eq!(apt.sources(), lines);
        assert_eq!(PrivateApt { suite: "sid", ..apt }.sources().lines().count(), 1);
    }
}
