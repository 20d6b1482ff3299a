//! The build that runs: which version, of which commit, of which day.

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, `-dirty` behind it when files were changed; `unknown` when it was built outside of a repository.
pub const COMMIT: &str = env!("BUILD_COMMIT");

/// The day of the commit, `yyyy-mm-dd`.
pub const DATE: &str = env!("BUILD_DATE");

/// All of it, for people.
pub const FULL: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), " of ", env!("BUILD_DATE"), ")");

/// The build number of the API: the commit's day, and the commit.
pub const NUMBER: &str = concat!(env!("BUILD_DATE"), "_", env!("BUILD_COMMIT"));
