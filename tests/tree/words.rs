//! The English of comments, of docstrings in Python, and of JSDoc: none begins with a pronoun where a noun or a verb
//! would say what the thing is or does.

use crate::source;

/// First words that say nothing of the thing.
const PRONOUNS: [&str; 19] = [
    "What", "Who", "Whose", "Whom", "Those", "It", "One", "That", "Where", "When", "Why", "How", "These",
    "This", "They", "Whoever", "Whatever", "Which", "Whether",
];

/// Doc comments that begin so. The number only falls; when it does, write the new one here.
const BEGINNINGS: usize = 0;

/// Doc comments with "is told" or "are told", in which nobody sees who says what to whom.
const TOLD: usize = 0;

/// The doc comments of a file, each from its first line on.
fn doc_comments(text: &str) -> Vec<String> {
    let mut comments: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in text.lines().map(str::trim_start) {
        let said = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        match said {
            Some(said) if is_inside => {
                if let Some(comment) = comments.last_mut() {
                    comment.push(' ');
                    comment.push_str(said);
                }
            }
            Some(said) => comments.push(said.to_owned()),
            None => {}
        }
        is_inside = said.is_some() || is_inside && matches!(line, "///" | "//!");
    }
    comments
}

/// The first lines of plain comments, each on a line of its own.
fn plain_comments(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    let first = |line: &'_ &str| {
        let was_inside = is_inside;
        is_inside = line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!");
        is_inside && !was_inside
    };
    text.lines().map(str::trim_start).filter(first).map(|line| line[2..].trim_start()).collect()
}

/// True if a plain comment begins with a pronoun whose noun is not in sight. A reason may begin with "When" or "This".
fn begins_without_a_noun(comment: &str) -> bool {
    let first = comment.split([' ', ',', '.', ':']).next().unwrap_or("");
    let riddles = ["What", "Who", "Whose", "Whom", "Those", "It", "That", "They", "Whoever", "Which"];
    riddles.contains(&first)
        || ["One that", "One who", "One which"].iter().any(|begin| comment.starts_with(begin))
}

/// Lines of doc comments that begin a sentence with such a word. The reader's eye falls on beginnings of lines.
fn lines_without_a_noun(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim_start);
    let said = lines.filter_map(|line| line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! ")));
    said.filter(|said| begins_with_a_pronoun(said))
}

/// True if a comment begins with a word that says nothing of the thing.
fn begins_with_a_pronoun(comment: &str) -> bool {
    PRONOUNS.contains(&comment.split([' ', ',', '.', ':']).next().unwrap_or(""))
}

#[test]
fn docstrings_begin_with_the_thing_that_they_describe() {
    let mut count = 0;
    let files = ["benches", "tests", "fuzz", "panel", "src"].iter();
    let files = files.flat_map(|folder| source::files(folder, &[".py", ".js"]));
    for file in files.filter(|file| !file.path.contains("/vendor/")) {
        let begin = if file.path.ends_with(".js") { "/** " } else { "\"\"\"" };
        for said in file.text.lines().filter_map(|line| line.trim_start().strip_prefix(begin)) {
            count += 1;
            assert!(!begins_with_a_pronoun(said), "{}: name the thing: {said}", file.path);
        }
    }
    assert!(count > 300, "{count} docstrings were read");
}

#[test]
fn doc_comments_begin_with_the_thing_that_they_describe() {
    let mut comments: Vec<String> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for (folder, least) in
        [("src", 2500), ("proto-impl", 2500), ("benches", 100), ("fuzz", 100), ("tests", 600)]
    {
        let files = source::files(folder, &[".rs"]);
        let found: Vec<String> = files.iter().flat_map(|file| doc_comments(&file.text)).collect();
        assert!(found.len() > least, "{folder} was not read: {} comments", found.len());
        comments.extend(found);
        for file in &files {
            lines.extend(lines_without_a_noun(&file.text).map(|said| format!("{}: {said}", file.path)));
        }
    }
    assert!(lines.is_empty(), "name the thing at the beginning of the line: {lines:#?}");
    let begins = |comment: &&String| begins_with_a_pronoun(comment);
    let tells = |comment: &&String| comment.contains(" is told") || comment.contains(" are told");
    for (name, count, listed) in [
        ("begin with a pronoun", comments.iter().filter(begins).count(), BEGINNINGS),
        ("say \"is told\"", comments.iter().filter(tells).count(), TOLD),
    ] {
        assert!(count <= listed, "{count} doc comments {name}; {listed} did: name the thing instead");
        assert!(count == listed, "{count} doc comments {name}: write that number in place of {listed}");
    }
}

#[test]
fn plain_comments_begin_with_the_thing_or_the_reason() {
    let mut count = 0;
    for folder in ["src", "proto-impl", "benches", "fuzz", "tests"] {
        for file in source::files(folder, &[".rs"]) {
            for said in plain_comments(&file.text) {
                count += 1;
                assert!(!begins_without_a_noun(said), "{}: name the thing: {said}", file.path);
            }
        }
    }
    assert!(count > 3000, "{count} comments were read");
}

#[test]
fn comments_of_scripts_and_pages_begin_with_the_thing_or_the_reason() {
    let mut count = 0;
    for folder in ["benches", "tests", "fuzz", "panel", "src", "packaging"] {
        for file in source::files(folder, &[".py", ".js", ".sh"]) {
            let mark = if file.path.ends_with(".js") { "//" } else { "#" };
            let mut before = "";
            for line in file.text.lines().map(str::trim_start).filter(|_| !file.path.contains("/vendor/")) {
                if let Some(said) = line.strip_prefix(mark).filter(|_| !before.starts_with(mark)) {
                    count += 1;
                    assert!(
                        !begins_without_a_noun(said.trim_start()),
                        "{}: name the thing: {said}",
                        file.path
                    );
                }
                before = line;
            }
        }
    }
    assert!(count > 200, "{count} comments were read");
}

#[test]
fn comments_are_read_whole_and_apart() {
    let text = "/// What it is.\n/// More.\n///\n/// And more.\nfn a();\n\n    /// It.\n    fn b();\n//! A module.\n";
    assert_eq!(doc_comments(text), ["What it is. More. And more.", "It.", "A module."]);
    let lines =
        "/// Waits.\n/// It ends with the\n/// what follows.\n//! Where it stands.\n// It is plain.\n";
    assert!(lines_without_a_noun(lines).eq(["It ends with the", "Where it stands."]));
    let text = "    // First line.\n    // It goes on.\n    code(); // It is beside code.\n//! Docs.\n//\n// Second.\n";
    assert_eq!(plain_comments(text), ["First line.", ""]);
}
