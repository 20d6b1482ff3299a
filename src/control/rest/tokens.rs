//! Tokens of streams (docs/security.md).

use serde::Deserialize;

use super::call::{Call, Reply, bad_request};
use super::lists::{page_of, removed};
use crate::auth::access::{Direction, sign_jwt};
use crate::control::access::TOKENS_MAX;
use crate::control::answer::{Outcome, json};
use crate::control::broadcast::{BodyError, is_stream_id, parse_json};
use crate::control::context::Context;
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, AuxiliaryWrite, Token};
use crate::control::{Now, Walks};
use crate::store::Kind;

/// Number of characters of a one-time token. Together they hold 143 random bits.
const TOKEN_CHARS: usize = 24;
/// Longest id of a room, in bytes.
const ROOM_BYTES_MAX: usize = 256;
/// Maximum number of tokens of one bulk delete.
const BULK_MAX: usize = 10_000;

const INCOMPLETE: &str = "Define Stream ID, Token Type and Expire Date (unix time)";
const WRONG_TYPE: &str = "Invalid token type. Supported types are 'play' and 'publish'";
const NOT_SAVED: &str = "Cannot save token to the datastore";
const NO_JWT: &str = "Cannot create JWT token. The problem can be ->  this is community edition or JWT stream key is not \
                      set or it's length is less than 32";

/// The body of a request to validate a token.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    token_id: Option<String>,
    stream_id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    room_id: Option<String>,
}

fn refused(message: &str) -> Reply {
    Reply::Now(Outcome::failure(message).response(400))
}

fn outcome(ok: bool) -> Reply {
    let outcome = if ok { Outcome::success() } else { Outcome::failure("") };
    Reply::Now(outcome.response(200))
}

fn is_direction(kind: &str) -> bool {
    kind == Direction::Play.word() || kind == Direction::Publish.word()
}

/// Returns the token to make, without its value.
fn wanted(call: &Call<'_>) -> Result<Token, Reply> {
    let [id, ..] = call.params;
    let expires = call.query("expireDate");
    let (kind, room) = (call.query("type"), call.query("roomId"));
    let expires: i64 = match expires {
        "" => 0,
        text => text.parse().map_err(|_| Reply::Now(crate::http::Response::error(404, "Not Found")))?,
    };
    if !is_stream_id(id) || kind.is_empty() || expires <= 0 || room.len() > ROOM_BYTES_MAX {
        return Err(refused(INCOMPLETE));
    }
    Ok(Token {
        token_id: String::new(),
        stream_id: id.to_owned(),
        expire_date: expires,
        kind: kind.to_owned(),
        room_id: (!room.is_empty()).then(|| room.to_owned()),
    })
}

/// `GET /broadcasts/{id}/token`: makes a one-time token.
pub(super) fn create(
    cx: &mut Context,
    records: &mut Records,
    walks: &mut Walks,
    now: Now,
    call: &Call<'_>,
) -> Reply {
    let token = match wanted(call) {
        Ok(token) if !is_direction(&token.kind) => return refused(WRONG_TYPE),
        Ok(token) => Token { token_id: cx.alphanumerics(TOKEN_CHARS), ..token },
        Err(refusal) => return refusal,
    };
    let app = &call.app.name;
    if records.auxiliary.count(Kind::Token, app) >= TOKENS_MAX {
        return refused(NOT_SAVED);
    }
    let key = Token::key(app, &token.stream_id, &token.token_id);
    let answer = json(200, &token);
    walks.arm_sweep(now);
    let changes = vec![(key, Some(Auxiliary::Token(token)))];
    records.write_auxiliary(
        now,
        AuxiliaryWrite { changes, files: Vec::new(), waiter: Some((call.requester, answer)) },
    );
    Reply::Later
}

/// `GET /broadcasts/{id}/jwt-token`: signs a token, which is not stored.
pub(super) fn create_jwt(call: &Call<'_>) -> Reply {
    let token = match wanted(call) {
        Ok(token) => token,
        Err(refusal) => return refusal,
    };
    let secret = &call.app.security.secrets.jwt;
    match sign_jwt(&token.stream_id, &token.kind, token.expire_date, secret) {
        // As in Ant Media Server, the type is checked only if a token can be signed.
        Some(_) if !is_direction(&token.kind) => refused(WRONG_TYPE),
        Some(jwt) => Reply::Now(json(200, &Token { token_id: jwt, ..token })),
        None => refused(NO_JWT),
    }
}

/// `POST /broadcasts/validate-token`: uses up a valid token, except one for a room.
pub(super) fn validate(records: &mut Records, now: Now, call: &Call<'_>) -> Reply {
    let body: Result<Option<Option<Asked>>, BodyError> = parse_json(&call.request.body);
    let asked = match body {
        Ok(body) => body.flatten().unwrap_or_default(),
        Err(error) => return bad_request(&error.to_string()),
    };
    let (id, kind) = (asked.token_id.unwrap_or_default(), asked.kind.unwrap_or_default());
    let room = asked.room_id.filter(|room| !room.is_empty());
    let app = &call.app.name;
    let stream = match &room {
        Some(_) => records.auxiliary.stream_of_room_token(app, &id).map(str::to_owned),
        None => asked.stream_id,
    };
    let Some(stream) = stream else { return outcome(false) };
    let key = Token::key(app, &stream, &id);
    let Some(Auxiliary::Token(token)) = records.auxiliary.pending(&key) else {
        return outcome(false);
    };
    if !token.is_valid(now, &kind) || (room.is_some() && token.room_id != room) {
        return outcome(false);
    }
    if room.is_some() {
        return outcome(true);
    }
    let answer = Outcome::success().response(200);
    records.write_auxiliary(
        now,
        AuxiliaryWrite {
            changes: vec![(key, None)],
            files: Vec::new(),
            waiter: Some((call.requester, answer)),
        },
    );
    Reply::Later
}

/// `DELETE /broadcasts/{id}/tokens`. Removes at most [`BULK_MAX`], and fails if any are left.
pub(super) fn delete_all(records: &mut Records, now: Now, call: &Call<'_>) -> Reply {
    let [id, ..] = call.params;
    let mut keys = records.auxiliary.keys_of(Kind::Token, &call.app.name, id, usize::MAX);
    if keys.is_empty() {
        return outcome(false);
    }
    let left = keys.len().saturating_sub(BULK_MAX);
    keys.truncate(BULK_MAX);
    let changes = keys.into_iter().map(|key| (key, None)).collect();
    let waiter = Some((call.requester, removed(BULK_MAX, left)));
    records.write_auxiliary(now, AuxiliaryWrite { changes, files: Vec::new(), waiter });
    Reply::Later
}

/// `GET /broadcasts/{id}/tokens/list/{offset}/{size}`.
pub(super) fn list(records: &Records, call: &Call<'_>) -> Reply {
    let [id, offset, size, _] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(crate::http::Response::error(404, "Not Found"));
    };
    let tokens = records.auxiliary.of_stream(Kind::Token, &call.app.name, id).filter_map(|side| match side {
        Auxiliary::Token(token) => Some(token),
        Auxiliary::Subscriber(_) | Auxiliary::User(_) | Auxiliary::Vod(_) => None,
    });
    Reply::Now(json(200, &tokens.skip(offset).take(size).collect::<Vec<_>>()))
}
