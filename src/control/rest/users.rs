//! Users, logins and sessions (docs/rest.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::call::{Caller, Origin, Reply, RootCall, bad_request};
use super::lists::{Lists, offset_of};
use super::scan::Scan;
use crate::control::answer::Outcome;
use crate::control::broadcast::{BodyError, parse_json};
use crate::control::context::Context;
use crate::control::management::Management;
use crate::control::management::{
    PasswordHash, Purpose, Role, SESSION_COOKIE, SYSTEM, SessionId, Try, User, is_email,
};
use crate::control::mask::Requester;
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, AuxiliaryRecords, AuxiliaryWrite};
use crate::control::{ADDS_USER, Now, Outbound};
use crate::http::Response;
use crate::jobs::{self, PasswordDigest, PasswordOutcome};
use crate::store::{Key, Kind};

/// Answer of Ant Media Server to a login that is blocked after too many failures.
const BLOCKED: &str = "Too many login attempts. User is blocked for 300 secs";
const CODE_WANTED: &str = "The first user is made with the code in the log of the server's start";
const WRONG_CODE: &str = "The code is missing or wrong. It is in the log of the server's start";
/// Name under which attempts to guess the code for the first user are counted. It is not a valid e-mail, so no user
/// has this name.
const CODE_ATTEMPTS: &str = "first user";
const TAKEN: &str = "User with the same e-mail already exists";
/// Maximum number of users of one server.
const USERS_MAX: usize = 10_000;
/// Largest record of a user, in bytes.
const USER_BYTES_MAX: usize = 32 << 10;

/// The body of a login, a user, or a password change.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct UserBody {
    email: Option<String>,
    password: Option<String>,
    new_password: Option<String>,
    code: Option<String>,
    user_type: Option<Role>,
    scope: Option<String>,
    app_name_user_type: Option<BTreeMap<String, Role>>,
    first_name: Option<String>,
    last_name: Option<String>,
    full_name: Option<String>,
    picture: Option<String>,
}

impl UserBody {
    /// Parses the body; `None` if there is none.
    fn read(call: &RootCall<'_>) -> Result<Option<Self>, BodyError> {
        let body: Option<Option<Self>> = parse_json(&call.request.body)?;
        Ok(body.flatten())
    }

    fn email(&self) -> &str {
        self.email.as_deref().unwrap_or("")
    }

    fn password(&self) -> Option<PasswordDigest> {
        PasswordDigest::parse(self.password.as_deref().unwrap_or(""))
    }

    fn new_password(&self) -> Option<PasswordDigest> {
        PasswordDigest::parse(self.new_password.as_deref().unwrap_or(""))
    }

    fn into_user(self) -> User {
        User {
            email: self.email.unwrap_or_default(),
            user_type: self.user_type,
            scope: self.scope,
            app_name_user_type: self.app_name_user_type,
            first_name: self.first_name,
            last_name: self.last_name,
            full_name: self.full_name,
            picture: self.picture,
            password_hash: PasswordHash::default(),
        }
    }
}

macro_rules! body_of {
    ($call:expr) => {
        match UserBody::read($call) {
            Ok(body) => body,
            Err(error) => return bad_request(&error.to_string()),
        }
    };
}

fn done(outcome: Outcome<'_>) -> Reply {
    Reply::Now(outcome.response(200))
}

fn busy() -> Response {
    Outcome::failure("Too many login attempts").response(429).header("Retry-After", "1")
}

/// `POST /users/authenticate`.
pub(super) fn authenticate(
    cx: &mut Context,
    records: &Records,
    management: &mut Management,
    now: Now,
    call: &RootCall<'_>,
) -> Reply {
    let body = body_of!(call).unwrap_or_default();
    let email = body.email().to_owned();
    let (origin, client) = (call.origin, call.client);
    match management.lockout.begin(now.mono, client, &email) {
        Try::Locked => return done(Outcome::failure(BLOCKED)),
        Try::TooMany => return Reply::Now(busy()),
        Try::Go => {}
    }
    let Some(digest) = body.password() else {
        management.lockout.failed(now.mono, client, &email);
        management.answer_late(cx, now, origin.requester, Outcome::failure("").response(200));
        return Reply::Later;
    };
    let purpose = Purpose::Login { origin, client, email: email.clone() };
    if records.verify_hash(cx, digest, &email, purpose) { Reply::Later } else { Reply::Now(busy()) }
}

/// `POST /users/initial`: allowed only while there are no users, and only from this machine. With
/// `server.first_user_code`, the code logged at this start is required.
pub(super) fn initial(
    cx: &mut Context,
    records: &Records,
    outbound: &mut Outbound,
    management: &mut Management,
    now: Now,
    call: &RootCall<'_>,
) -> Reply {
    // Ant Media Server returns this number even on success.
    let refused = || done(Outcome::failure("").error_id(-1));
    if !call.client.is_loopback() {
        outbound.note_refused(cx, records, None, Some(call.client), call.request);
        return Reply::Now(Response::error(403, "Not allowed IP"));
    }
    let body = body_of!(call).unwrap_or_default();
    let Some(digest) = body.password() else { return refused() };
    if records.auxiliary.has_users() || !is_email(body.email()) {
        return refused();
    }
    if let Some(refusal) = check_code(cx, management, now, call, body.code.as_deref().unwrap_or("")) {
        return refusal;
    }
    let user = User { user_type: None, ..body.into_user() };
    let user = User {
        first_name: user.first_name,
        last_name: user.last_name,
        full_name: user.full_name,
        picture: user.picture,
        ..User::administrator(&user.email)
    };
    if user_bytes(&user) > USER_BYTES_MAX {
        return refused();
    }
    let purpose = Purpose::Create { origin: call.origin, user: Box::new(user), initial: true };
    if cx.make_hash(digest, purpose) { Reply::Later } else { refused() }
}

/// Refuses to create the first user without the code. Wrong codes count as failed logins from the client's address.
/// If all users are deleted, there is no code until the server starts again.
fn check_code(
    cx: &mut Context,
    management: &mut Management,
    now: Now,
    call: &RootCall<'_>,
    given: &str,
) -> Option<Reply> {
    if !cx.config.server.doors.first_user_code {
        return None;
    }
    let lockout = &mut management.lockout;
    match lockout.begin(now.mono, call.client, CODE_ATTEMPTS) {
        Try::Locked => return Some(done(Outcome::failure(BLOCKED).error_id(-1))),
        Try::TooMany => return Some(Reply::Now(busy())),
        Try::Go => {}
    }
    if management.first_code.as_ref().is_some_and(|code| code.fits(given)) {
        return None;
    }
    tracing::info!(client = %call.client, "first user refused: the code is not the one in the log");
    lockout.failed(now.mono, call.client, CODE_ATTEMPTS);
    let refusal = Outcome::failure(WRONG_CODE).error_id(-1).response(200);
    management.answer_late(cx, now, call.origin.requester, refusal);
    Some(Reply::Later)
}

/// `GET /first-login-status`.
pub(super) fn first_login(cx: &Context, records: &Records) -> Reply {
    let code = cx.config.server.doors.first_user_code.then_some(CODE_WANTED);
    done(if records.auxiliary.has_users() {
        Outcome::failure("")
    } else {
        Outcome::success().message(code.or(Some("")))
    })
}

/// `GET /authentication-status`.
pub(super) fn authentication(call: &RootCall<'_>) -> Reply {
    done(if call.caller == Caller::Nobody { Outcome::failure("") } else { Outcome::success() })
}

/// `GET /users/{email}/blocked`, for the client's address.
pub(super) fn blocked(management: &Management, call: &RootCall<'_>) -> Reply {
    let [email, ..] = call.params;
    let blocked = management.lockout.is_locked(call.client, email);
    done(if blocked { Outcome::success() } else { Outcome::failure("") })
}

/// `DELETE /users/logout`.
pub(super) fn logout(management: &mut Management, call: &RootCall<'_>) -> Reply {
    if let Caller::User { id, .. } = &call.caller {
        management.sessions.end(*id);
    }
    let gone = Outcome::success().response(200);
    Reply::Now(
        gone.header("Set-Cookie", format!("{SESSION_COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax")),
    )
}

/// `GET /admin-status`.
pub(super) fn admin_status(records: &Records, call: &RootCall<'_>) -> Reply {
    let is_admin = match &call.caller {
        Caller::Nobody => false,
        Caller::Token => true,
        Caller::User { email, .. } => records.auxiliary.user(email).is_some_and(|user| {
            user.user_type == Some(Role::Admin) || user.role_in(SYSTEM) == Some(Role::Admin)
        }),
    };
    done(match is_admin {
        true => Outcome::success().message(Some("User is admin")),
        false => Outcome::failure("User is not admin"),
    })
}

/// `GET /user-list`.
pub(super) fn list(lists: Lists<'_>, now: Now, call: &RootCall<'_>) -> Reply {
    let Some(offset) = offset_of(call.query("offset")) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    lists.scan(now, Scan::of_users(call.origin.requester, offset, USERS_MAX))
}

/// `POST /users`.
pub(super) fn create(cx: &mut Context, records: &Records, call: &RootCall<'_>) -> Reply {
    let Some(body) = body_of!(call) else { return done(Outcome::failure("User object is null")) };
    if body.email().is_empty() || body.password.is_none() || records.auxiliary.user(body.email()).is_some() {
        return done(Outcome::failure(TAKEN));
    }
    if !is_email(body.email()) {
        return done(Outcome::failure("The e-mail must be one word of at most 254 bytes"));
    }
    let Some(digest) = body.password() else {
        return done(Outcome::failure("The password must be an MD5 hash in hexadecimal"));
    };
    let user = body.into_user();
    if user_bytes(&user) > USER_BYTES_MAX || records.auxiliary.users().count() >= USERS_MAX {
        return done(Outcome::failure("The limit of users is reached"));
    }
    let purpose = Purpose::Create { origin: call.origin, user: Box::new(user), initial: false };
    if cx.make_hash(digest, purpose) { Reply::Later } else { Reply::Now(busy()) }
}

/// `PUT /users`: replaces the record with the body; the password stays if none is given.
pub(super) fn update(cx: &mut Context, records: &mut Records, now: Now, call: &RootCall<'_>) -> Reply {
    let body = body_of!(call).unwrap_or_default();
    if call.caller.email() == Some(body.email()) {
        return done(Outcome::failure("User cannot edit itself"));
    }
    let Some(old) = records.auxiliary.user(body.email()) else {
        return done(Outcome::failure("Edited user is not found in database"));
    };
    let password_hash = old.password_hash.clone();
    let new = body.new_password.as_deref().filter(|text| !text.is_empty()).map(|_| body.new_password());
    let user = User { password_hash, ..body.into_user() };
    if user_bytes(&user) > USER_BYTES_MAX {
        return done(Outcome::failure("The user's record is larger than 32 KiB"));
    }
    match new {
        None => {
            records.write_user(
                cx,
                now,
                user,
                Some((call.origin.requester, Outcome::success().response(200))),
            );
        }
        Some(None) => return done(Outcome::failure("The password must be an MD5 hash in hexadecimal")),
        Some(Some(digest)) => {
            let purpose = Purpose::Replace { origin: call.origin, user: Box::new(user) };
            if !cx.make_hash(digest, purpose) {
                return Reply::Now(busy());
            }
        }
    }
    Reply::Later
}

/// `DELETE /users/{email}`.
pub(super) fn delete(records: &mut Records, now: Now, call: &RootCall<'_>) -> Reply {
    let [email, ..] = call.params;
    if call.caller.email() == Some(email) {
        return done(Outcome::failure("You cannot delete yourself"));
    }
    if records.auxiliary.user(email).is_none() {
        return done(Outcome::failure(""));
    }
    let waiter = Some((call.origin.requester, Outcome::success().response(200)));
    records.write_auxiliary(
        now,
        AuxiliaryWrite { changes: vec![(user_key(email), None)], files: Vec::new(), waiter },
    );
    Reply::Later
}

/// `POST /users/password`, for the logged-in user. A wrong old password counts as a failed login.
pub(super) fn change_password(
    cx: &mut Context,
    records: &Records,
    management: &mut Management,
    now: Now,
    call: &RootCall<'_>,
) -> Reply {
    let body = body_of!(call).unwrap_or_default();
    let absent = "User name does not exist or there is no new password";
    let has_new = body.new_password.as_ref().is_some_and(|new| !new.is_empty());
    let (email, session) = match &call.caller {
        Caller::User { email, id } if has_new => (email, *id),
        Caller::User { .. } | Caller::Token | Caller::Nobody => return done(Outcome::failure(absent)),
    };
    let (origin, client) = (call.origin, call.client);
    match management.lockout.begin(now.mono, client, email) {
        Try::Locked => return done(Outcome::failure(BLOCKED)),
        Try::TooMany => return Reply::Now(busy()),
        Try::Go => {}
    }
    let Some(old) = body.password() else {
        management.lockout.failed(now.mono, client, email);
        return done(Outcome::failure("User not exist with that name and pass"));
    };
    let Some(new) = body.new_password() else { return done(Outcome::failure(absent)) };
    let purpose = Purpose::CheckOld { origin, client, email: email.to_string(), session, new };
    if records.verify_hash(cx, old, email, purpose) { Reply::Later } else { Reply::Now(busy()) }
}

fn user_key(email: &str) -> Key {
    Key::new(Kind::User, "", email)
}

fn user_bytes(user: &User) -> usize {
    serde_json::to_vec(user).map_or(usize::MAX, |bytes| bytes.len())
}

impl Records {
    pub(super) fn write_user(
        &mut self,
        cx: &mut Context,
        now: Now,
        user: User,
        waiter: Option<(Requester, Response)>,
    ) {
        if let Some((requester, _)) = &waiter {
            cx.audit.audit_user(requester.session(), &user.email);
        }
        let changes = vec![(user_key(&user.email), Some(Auxiliary::User(user)))];
        self.write_auxiliary(now, AuxiliaryWrite { changes, files: Vec::new(), waiter });
    }

    /// Adds a user from the command line, with a password that is already hashed.
    pub(in crate::control) fn add_administrator(
        &mut self,
        cx: &mut Context,
        now: Now,
        requester: Requester,
        email: &str,
        hash: String,
    ) {
        let refused = |text| Outcome::failure(text).response(200);
        let refusal = if !is_email(email) {
            Some(refused("the e-mail must be one word of at most 254 bytes"))
        } else if self.auxiliary.user(email).is_some() {
            Some(refused("a user with this e-mail exists"))
        } else {
            None
        };
        cx.audit_command(requester.session(), ADDS_USER, "users");
        if let Some(refusal) = refusal {
            cx.audit.audit_user(requester.session(), email);
            cx.answer(requester, refusal);
            return;
        }
        let user = User { password_hash: PasswordHash(hash), ..User::administrator(email) };
        self.write_user(cx, now, user, Some((requester, Outcome::success().response(200))));
    }
}

impl AuxiliaryRecords {
    /// Returns the user as it will be after all pending changes.
    pub(in crate::control) fn user(&self, email: &str) -> Option<&User> {
        match self.pending(&user_key(email)) {
            Some(Auxiliary::User(user)) => Some(user),
            Some(Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::Vod(_)) | None => None,
        }
    }

    /// Returns the users as the API shows them, without pending changes.
    fn users(&self) -> impl Iterator<Item = &User> {
        self.of(Kind::User, &Arc::from(""), "").filter_map(|(_, record)| match record {
            Auxiliary::User(user) => Some(user),
            Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::Vod(_) => None,
        })
    }

    pub(in crate::control) fn has_users(&self) -> bool {
        self.has_any(Kind::User)
    }
}

impl Management {
    /// Ends the sessions of a user whose password changed or who was removed.
    pub(in crate::control) fn end_sessions_of(
        &mut self,
        before: Option<&Auxiliary>,
        after: Option<&Auxiliary>,
    ) {
        let hash = |record: Option<&Auxiliary>| match record {
            Some(Auxiliary::User(user)) => Some(user.password_hash.clone()),
            Some(Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::Vod(_)) | None => None,
        };
        if let Some(Auxiliary::User(user)) = before
            && hash(before) != hash(after)
        {
            self.sessions.end_all(&user.email, hash(after).as_ref());
        }
    }

    /// Continues a request whose password hash has been computed.
    pub(in crate::control) fn hashed(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        purpose: Purpose,
        outcome: jobs::Outcome,
    ) {
        let jobs::Outcome::Password(outcome) = outcome else {
            cx.answer(purpose.origin().requester, busy());
            return;
        };
        let success = || Outcome::success().response(200);
        match (purpose, outcome) {
            (Purpose::Login { origin, client, email }, PasswordOutcome::Verified(fits)) => {
                self.logged_in(cx, records, now, (origin, client), &email, fits);
            }
            (Purpose::Create { origin, user, initial }, PasswordOutcome::Made(hash)) => {
                // Another request may have created the user while the password was being hashed.
                let late = if initial {
                    records.auxiliary.has_users()
                } else {
                    records.auxiliary.user(&user.email).is_some()
                };
                let late = late || (initial && records.auxiliary.user(&user.email).is_some());
                let number = if initial { -1 } else { 0 };
                if late {
                    let text = if initial { "" } else { TAKEN };
                    cx.answer(origin.requester, Outcome::failure(text).error_id(number).response(200));
                    return;
                }
                let user = User { password_hash: PasswordHash(hash), ..*user };
                let response = Outcome::success().error_id(number).response(200);
                records.write_user(cx, now, user, Some((origin.requester, response)));
            }
            (Purpose::Replace { origin, user }, PasswordOutcome::Made(hash)) => {
                if records.auxiliary.user(&user.email).is_none() {
                    let text = "Edited user is not found in database";
                    cx.answer(origin.requester, Outcome::failure(text).response(200));
                    return;
                }
                let user = User { password_hash: PasswordHash(hash), ..*user };
                records.write_user(cx, now, user, Some((origin.requester, success())));
            }
            (Purpose::CheckOld { origin, client, email, session, new }, PasswordOutcome::Verified(fits)) => {
                if fits && !self.lockout.is_locked(client, &email) {
                    if !cx.make_hash(new, Purpose::SetNew { origin, email, session }) {
                        cx.answer(origin.requester, busy());
                    }
                    return;
                }
                self.lockout.failed(now.mono, client, &email);
                let text = "User not exist with that name and pass";
                self.answer_late(cx, now, origin.requester, Outcome::failure(text).response(200));
            }
            (Purpose::SetNew { origin, email, session }, PasswordOutcome::Made(hash)) => {
                let Some(user) = records.auxiliary.user(&email).cloned() else {
                    cx.answer(origin.requester, Outcome::failure("").response(200));
                    return;
                };
                let hash = PasswordHash(hash);
                self.sessions.renew(session, hash.clone());
                let user = User { password_hash: hash, ..user };
                let response = Outcome::success().message(Some("Success")).response(200);
                records.write_user(cx, now, user, Some((origin.requester, response)));
            }
            // Cannot happen: the outcome matches the submitted work.
            (purpose, PasswordOutcome::Made(_) | PasswordOutcome::Verified(_)) => {
                cx.answer(purpose.origin().requester, Response::error(500, "Internal Server Error"));
            }
        }
    }

    fn logged_in(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        (origin, client): (Origin, std::net::IpAddr),
        email: &str,
        fits: bool,
    ) {
        if self.lockout.is_locked(client, email) {
            cx.answer(origin.requester, Outcome::failure(BLOCKED).response(200));
            return;
        }
        // Stored records count: a user who is not on disk yet cannot log in.
        let user = match records.auxiliary.get(&user_key(email)) {
            Some(Auxiliary::User(user)) if fits => Some(user.login_message()),
            Some(Auxiliary::User(_) | Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::Vod(_))
            | None => None,
        };
        let Some(message) = user else {
            // The name is not logged, since it may be a password in the wrong field.
            tracing::info!(%client, "login failed");
            self.lockout.failed(now.mono, client, email);
            self.answer_late(cx, now, origin.requester, Outcome::failure("").response(200));
            return;
        };
        tracing::info!(%client, email, "logged in");
        cx.audit.audit_login(origin.requester.session(), email);
        self.lockout.succeeded(client, email);
        let id = self.sessions.begin(now.mono, &mut cx.random, email);
        let response = Outcome::success().message(Some(&message)).response(200);
        cx.answer(origin.requester, response.header("Set-Cookie", cookie(id, origin.secure)));
    }
}

fn cookie(id: SessionId, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{SESSION_COOKIE}={id}; Path=/; HttpOnly; SameSite=Lax{secure}")
}
