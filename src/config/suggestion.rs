//! Suggestions for mistyped keys.

use super::home::{PREFIX, variable_of};
use super::keys::Effect;
use super::{Key, Level, Schema};

/// Maximum number of differing letters: wrong, missing, extra or swapped.
const EDITS_MAX: usize = 2;
/// An unknown key may differ from a known one by one letter for every five of its letters.
const LETTERS_OF_AN_EDIT: usize = 5;
/// An unknown variable may differ from a known one by one letter for every three of its letters. More differences
/// are allowed than in a file, because a mistyped switch must not be ignored as a variable of another program.
const LETTERS_OF_A_MISTAKE: usize = 3;
/// Minimum similarity of a known key to an unknown one for suggesting the known key.
const SIMILARITY_MIN: f64 = 0.75;

/// Makes the message for an unknown key of the command line. `given` has the prefix `app.` for keys of applications.
pub(super) fn unknown_key(schema: &Schema, given: &str) -> String {
    reason("key", given, keys(schema))
}

/// Makes the message for an environment variable that is not a setting but resembles one that works here: one or two
/// letters, the case, underscores or the level differ. `None` if the variable resembles no setting.
pub(super) fn mistyped_variable(schema: &Schema, given: &str) -> Option<String> {
    let plain = |variable: &str| {
        let word = variable.strip_prefix("APP_").unwrap_or(variable);
        word.replace('_', "").to_ascii_lowercase()
    };
    let wanted = plain(given.strip_prefix(PREFIX)?.to_ascii_uppercase().as_str());
    let of_level = |level: Level| schema.keys(level).iter().filter(|key| key.effect == Effect::Works);
    let server = of_level(Level::Server).map(|key| variable_of(key.name));
    let variables = server.chain(of_level(Level::App).map(|key| format!("APP_{}", variable_of(key.name))));
    let (distance, nearest) =
        variables.map(|known| (strsim::osa_distance(&plain(&known), &wanted), known)).min()?;
    let is_near = distance <= EDITS_MAX.min(wanted.len() / LETTERS_OF_A_MISTAKE);
    is_near.then(|| format!("there is no such variable; did you mean {PREFIX}{nearest}?"))
}

/// Returns all keys as written on the command line.
fn keys(schema: &Schema) -> impl Iterator<Item = String> {
    let server = schema.keys(Level::Server).iter().map(|key| key.name.to_owned());
    server.chain(schema.keys(Level::App).iter().map(|key| format!("app.{}", key.name)))
}

fn reason(what: &str, given: &str, known: impl Iterator<Item = String>) -> String {
    // Wrong case and a missing level are the most common mistakes.
    let plain = |word: &str| {
        let word = word.to_ascii_lowercase();
        word.strip_prefix("app.").unwrap_or(&word).to_owned()
    };
    let wanted = plain(given);
    let nearest = known
        .map(|word| (strsim::jaro_winkler(&plain(&word), &wanted), word))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN);
    match nearest {
        Some((_, word)) => format!("there is no such {what}; did you mean {word}?"),
        None => format!("there is no such {what}"),
    }
}

/// Returns the known key that an unknown one resembles: the case, or one or two letters, differ.
pub(super) fn near_key(schema: &Schema, level: Level, given: &str) -> Option<&'static str> {
    let plain = given.to_ascii_lowercase();
    let distance = |key: &Key| strsim::osa_distance(&key.name.to_ascii_lowercase(), &plain);
    let nearest = schema.keys(level).iter().map(|key| (distance(key), key.name)).min()?;
    // Short keys tolerate fewer differences. Otherwise most letters of a short key could differ.
    let max = EDITS_MAX.min(given.len() / LETTERS_OF_AN_EDIT);
    (nearest.0 <= max).then_some(nearest.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_word_is_named() {
        let schema: &Schema = Default::default();
        for (given, meant) in [
            ("playTokenControlEnabled", "app.playTokenControlEnabled"),
            ("app.playtokencontrolEnabled", "app.playTokenControlEnabled"),
            ("app.playTokenControlEnable", "app.playTokenControlEnabled"),
            ("http.prot", "http.port"),
            ("app.server.name", "server.name"),
        ] {
            let told = unknown_key(schema, given);
            assert!(told.ends_with(&format!("did you mean {meant}?")), "{given}: {told}");
        }
        assert_eq!(unknown_key(schema, "zzz"), "there is no such key");
        let told = mistyped_variable(schema, "MILLSTREAM_HTTP_PROT").unwrap();
        assert!(told.ends_with("did you mean MILLSTREAM_HTTP_PORT?"), "{told}");
    }

    #[test]
    fn c_01_a_key_of_a_file_is_near_one_that_differs_in_a_letter_or_two() {
        let schema: &Schema = crate::protocol::schema();
        for (level, given, meant) in [
            (Level::App, "playTokenControlEnable", Some("playTokenControlEnabled")),
            (Level::App, "remoteAlowedCIDR", Some("remoteAllowedCIDR")),
            (Level::App, "remoteallowedcidr", Some("remoteAllowedCIDR")),
            (Level::Server, "http.prot", Some("http.port")),
            (Level::Server, "https.prot", Some("https.port")),
            (Level::App, "db.kind", None),
            (Level::App, "zz", None),
            (Level::App, "", None),
            (Level::App, "http.port", None),
        ] {
            assert_eq!(near_key(schema, level, given), meant, "{given}");
        }
    }
}
