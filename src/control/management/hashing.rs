//! Password hashing, which takes tenths of a second and is done by jobs.

use std::net::IpAddr;

use super::sessions::SessionId;
use super::users::User;
use crate::control::answer::Origin;
use crate::control::context::Context;
use crate::control::records::Records;
use crate::jobs::{PasswordDigest, PasswordWork, Work};

/// The purpose of hashing a password.
#[derive(Debug)]
pub(in crate::control) enum Purpose {
    /// A login attempt.
    Login { origin: Origin, client: IpAddr, email: String },
    /// Creation of the first or another user.
    Create { origin: Origin, user: Box<User>, initial: bool },
    /// An update of a user with a new password.
    Replace { origin: Origin, user: Box<User> },
    /// Verification of the old password of a user who wants a new one. The session is the one of the request.
    CheckOld { origin: Origin, client: IpAddr, email: String, session: SessionId, new: PasswordDigest },
    /// Storage of the new password, after the old one was verified.
    SetNew { origin: Origin, email: String, session: SessionId },
}

impl Purpose {
    /// Returns the origin of the request that waits for the result.
    pub(in crate::control) const fn origin(&self) -> Origin {
        match self {
            Self::Login { origin, .. }
            | Self::Create { origin, .. }
            | Self::Replace { origin, .. }
            | Self::CheckOld { origin, .. }
            | Self::SetNew { origin, .. } => *origin,
        }
    }
}

impl Context {
    /// Hashes a password for storing; returns false if too many jobs wait.
    pub(in crate::control) fn make_hash(&mut self, digest: PasswordDigest, purpose: Purpose) -> bool {
        let mut salt = [0; 16];
        self.random.fill(&mut salt);
        self.hash(PasswordWork::Make { digest, salt }, purpose)
    }

    fn hash(&mut self, work: PasswordWork, purpose: Purpose) -> bool {
        self.submit(Work::Password(work), move |control, now, outcome| {
            control.management.hashed(&mut control.cx, &mut control.records, now, purpose, outcome)
        })
    }
}

impl Records {
    /// Verifies a password against the stored hash. If the user is unknown, verifies it against an empty hash, so that
    /// both cases take equally long. Returns false if too many jobs wait.
    pub(in crate::control) fn verify_hash(
        &self,
        cx: &mut Context,
        digest: PasswordDigest,
        email: &str,
        purpose: Purpose,
    ) -> bool {
        let stored = self.auxiliary.user(email).map(|user| user.password_hash.0.clone()).unwrap_or_default();
        cx.hash(PasswordWork::Verify { digest, stored }, purpose)
    }
}
