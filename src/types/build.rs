//! The version, commit and date of the running build.

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit, with `-dirty` if files were changed; `unknown` for a build outside of a repository.
pub const COMMIT: &str = env!("BUILD_COMMIT");

/// The day of the commit, `yyyy-mm-dd`.
pub const DATE: &str = env!("BUILD_DATE");

/// Version, commit and date, for people.
pub const FULL: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), " of ", env!("BUILD_DATE"), ")");

/// Build number in the API: date and commit.
pub const NUMBER: &str = concat!(env!("BUILD_DATE"), "_", env!("BUILD_COMMIT"));
