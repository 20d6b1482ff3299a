//! Users of the management API (docs/rest.md).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The scope that includes all other scopes.
pub(in crate::control) const SYSTEM: &str = "system";
/// Maximum length of an e-mail.
const EMAIL_BYTES_MAX: usize = 254;

/// True if a text may be a user's e-mail: a single word that can be part of a path. Its validity as a mail address is
/// not checked.
#[must_use]
pub fn is_email(text: &str) -> bool {
    (1..=EMAIL_BYTES_MAX).contains(&text.len())
        && !text.contains(['/', '\\'])
        && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
}

/// The role of a user within a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(in crate::control) enum Role {
    /// Full access.
    Admin,
    /// Access to streams and recordings.
    User,
    /// Read access only.
    ReadOnly,
}

impl Role {
    /// Returns the name used by the API.
    pub(in crate::control) const fn name(self) -> &'static str {
        match self {
            Self::Admin => "ADMIN",
            Self::User => "USER",
            Self::ReadOnly => "READ_ONLY",
        }
    }
}

/// The hash of a password; not printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::control) struct PasswordHash(pub(in crate::control) String);

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// A user as stored. The API shows the user without the hash. Members are in Ant Media Server's order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::control) struct User {
    pub(in crate::control) email: String,
    pub(in crate::control) user_type: Option<Role>,
    pub(in crate::control) scope: Option<String>,
    pub(in crate::control) app_name_user_type: Option<BTreeMap<String, Role>>,
    pub(in crate::control) first_name: Option<String>,
    pub(in crate::control) last_name: Option<String>,
    pub(in crate::control) full_name: Option<String>,
    pub(in crate::control) picture: Option<String>,
    #[serde(skip_serializing_if = "is_hidden")]
    pub(in crate::control) password_hash: PasswordHash,
}

/// True if there is no hash to serialize, as in the copy of a user that the API shows.
fn is_hidden(hash: &PasswordHash) -> bool {
    hash.0.is_empty()
}

impl User {
    /// Makes an administrator of everything.
    pub(in crate::control) fn administrator(email: &str) -> Self {
        Self {
            email: email.to_owned(),
            user_type: Some(Role::Admin),
            scope: Some(SYSTEM.to_owned()),
            app_name_user_type: Some(BTreeMap::from([(SYSTEM.to_owned(), Role::Admin)])),
            ..Self::default()
        }
    }

    /// Returns the user as shown by the API.
    pub(in crate::control) fn shown(&self) -> Self {
        Self { password_hash: PasswordHash::default(), ..self.clone() }
    }

    /// Returns the role for exactly this scope. A role in the scope `system`, which includes all scopes, does not
    /// count.
    pub(in crate::control) fn role_in(&self, scope: &str) -> Option<Role> {
        let mapped = self.app_name_user_type.as_ref().and_then(|roles| roles.get(scope)).copied();
        mapped.or_else(|| if self.scope.as_deref() == Some(scope) { self.user_type } else { None })
    }

    /// Returns the message of a successful login, which names the user's scopes and roles.
    pub(in crate::control) fn login_message(&self) -> String {
        match (&self.scope, self.user_type, &self.app_name_user_type) {
            // The map alone has all roles if there is more than one.
            (_, _, Some(roles)) if roles.len() > 1 => serde_json::to_string(roles).unwrap_or_default(),
            (Some(scope), Some(role), _) => format!("{scope}/{}", role.name()),
            (_, _, Some(roles)) => serde_json::to_string(roles).unwrap_or_default(),
            (None, _, None) | (_, None, None) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_the_reference_s_order_and_without_the_hash() {
        let mut user = User::administrator("a@b");
        user.password_hash = PasswordHash("pbkdf2-canary".into());
        assert_eq!(
            serde_json::to_string(&user.shown()).unwrap(),
            r#"{"email":"a@b","userType":"ADMIN","scope":"system","appNameUserType":{"system":"ADMIN"},"firstName":null,"lastName":null,"fullName":null,"picture":null}"#
        );
        let stored = serde_json::to_string(&user).unwrap();
        assert_eq!(serde_json::from_str::<User>(&stored).unwrap(), user);
        assert!(!format!("{user:?}").contains("canary"));
    }

    #[test]
    fn roles_come_from_the_map_or_from_scope_and_type() {
        let user: User = serde_json::from_str(
            r#"{"email":"a","userType":"USER","scope":"live","appNameUserType":{"LiveApp":"READ_ONLY"}}"#,
        )
        .unwrap();
        assert_eq!(user.role_in("live"), Some(Role::User));
        assert_eq!(user.role_in("LiveApp"), Some(Role::ReadOnly));
        assert_eq!((user.role_in("liv"), user.role_in(SYSTEM)), (None, None));
        assert_eq!(user.login_message(), "live/USER");
        let more = [("live".to_owned(), Role::Admin), ("system".to_owned(), Role::ReadOnly)];
        let both = User { app_name_user_type: Some(more.into_iter().collect()), ..user.clone() };
        assert_eq!(both.login_message(), r#"{"live":"ADMIN","system":"READ_ONLY"}"#);
        let user = User { scope: None, ..user };
        assert_eq!(user.login_message(), r#"{"LiveApp":"READ_ONLY"}"#);
    }

    #[test]
    fn names_are_one_word() {
        assert!(is_email("admin@example.org") && is_email("admin") && is_email("\u{1f600}"));
        for text in ["", "a b", "a/b", "a\\b", "a\nb", "a\u{0}", &"x".repeat(255)] {
            assert!(!is_email(text), "{text}");
        }
    }
}
