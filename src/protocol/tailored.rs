//! Text in the form for one viewer, edited line by line as it is sent: the source is shared by all viewers, and only
//! the block being sent is this viewer's own.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::hub::OwnText;

/// Size of a block in bytes, exceeded by at most its last line.
const BLOCK_BYTES: usize = 16 * 1024;

/// Writes a line in this viewer's form, without its line end. Returns false to leave the line out.
type Edit = Arc<dyn Fn(&str, &mut String) -> bool + Send + Sync>;

/// A text in the form for one viewer.
#[derive(Clone)]
pub struct Tailored {
    parts: VecDeque<Bytes>,
    /// The line editor; `None` to send the parts as they are.
    edit: Option<Edit>,
    length: u64,
    held: OwnText,
}

impl fmt::Debug for Tailored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tailored").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Tailored {
    /// Makes the text from the lines of `parts`, one part after another, as `edit` writes them. `None` if they are
    /// not UTF-8.
    pub(super) fn new(
        parts: impl IntoIterator<Item = Bytes>,
        edit: impl Fn(&str, &mut String) -> bool + Send + Sync + 'static,
    ) -> Option<Self> {
        let parts: VecDeque<Bytes> = parts.into_iter().collect();
        let (mut length, mut line) = (0_u64, String::new());
        for part in &parts {
            for text in std::str::from_utf8(part).ok()?.lines() {
                line.clear();
                if edit(text, &mut line) {
                    length = length.saturating_add(u64::try_from(line.len()).ok()?).saturating_add(1);
                }
            }
        }
        Some(Self { parts, edit: Some(Arc::new(edit)), length, held: OwnText::default() })
    }

    /// Makes the text of `parts` as they are, one after another.
    pub(super) fn plain(parts: impl IntoIterator<Item = Bytes>) -> Self {
        let parts: VecDeque<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let length = |part: &Bytes| u64::try_from(part.len()).unwrap_or(u64::MAX);
        let length = parts.iter().map(length).fold(0, u64::saturating_add);
        Self { parts, edit: None, length, held: OwnText::default() }
    }

    /// True if the text is edited, and may therefore contain parts of the viewer's request.
    pub(super) const fn is_edited(&self) -> bool {
        self.edit.is_some()
    }

    /// Makes `held` count the text's blocks for as long as anything refers to them.
    pub(super) fn counted_in(self, held: &OwnText) -> Self {
        Self { held: held.clone(), ..self }
    }

    /// Returns the counter of the text's blocks.
    pub(super) const fn held(&self) -> &OwnText {
        &self.held
    }

    /// Length of the whole text in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the next block; `None` at the end.
    pub fn next_block(&mut self) -> Option<Bytes> {
        let Some(edit) = self.edit.clone() else {
            let part = self.parts.front_mut()?;
            let block = part.split_to(BLOCK_BYTES.min(part.len()));
            if part.is_empty() {
                self.parts.pop_front();
            }
            return Some(block);
        };
        let mut block =
            String::with_capacity(BLOCK_BYTES.min(usize::try_from(self.length).unwrap_or(BLOCK_BYTES)));
        while block.len() < BLOCK_BYTES {
            let Some(line) = self.next_line() else { break };
            let Ok(line) = std::str::from_utf8(&line) else { break };
            if edit(line, &mut block) {
                block.push('\n');
            }
        }
        (!block.is_empty()).then(|| self.held.count(block))
    }

    fn next_line(&mut self) -> Option<Bytes> {
        while self.parts.front().is_some_and(Bytes::is_empty) {
            self.parts.pop_front();
        }
        let part = self.parts.front_mut()?;
        let end = part.iter().position(|byte| *byte == b'\n');
        let mut line = part.split_to(end.and_then(|end| end.checked_add(1)).unwrap_or(part.len()));
        line.truncate(end.unwrap_or(line.len()));
        if line.last() == Some(&b'\r') {
            line.truncate(line.len().saturating_sub(1));
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole text, and the bytes of the largest block.
    pub(in crate::protocol) fn all(mut tailored: Tailored) -> (String, usize) {
        let (mut text, mut largest) = (Vec::new(), 0);
        while let Some(block) = tailored.next_block() {
            largest = largest.max(block.len());
            text.extend_from_slice(&block);
        }
        assert_eq!(u64::try_from(text.len()).unwrap(), tailored.length());
        (String::from_utf8(text).unwrap(), largest)
    }

    #[test]
    fn lines_are_edited_left_out_and_kept_in_order_over_parts_and_blocks() {
        let lines: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let parts = [Bytes::from(lines.clone()), Bytes::new(), Bytes::from_static(b"# no\r\nlast")];
        let edit = |line: &str, out: &mut String| {
            out.push_str(if line.starts_with('#') { "" } else { line });
            !line.starts_with('#')
        };
        let (text, largest) = all(Tailored::new(parts, edit).unwrap());
        assert_eq!(text, format!("{lines}last\n"));
        assert!(largest < BLOCK_BYTES + 100, "{largest}");
        assert!(Tailored::new([Bytes::from_static(&[0xff])], |_, _| true).is_none());
    }

    #[test]
    fn a_plain_text_is_sent_as_it_is() {
        let shared = Bytes::from(vec![b'x'; 3 * BLOCK_BYTES + 1]);
        let parts =
            [Bytes::from_static(b"head\r\n"), shared.clone(), Bytes::new(), Bytes::from_static(b"end")];
        let mut text = Tailored::plain(parts.clone());
        text.next_block();
        let block = text.next_block().unwrap();
        assert!(block.len() == BLOCK_BYTES && block.as_ptr() == shared.as_ptr());
        let (whole, largest) = all(Tailored::plain(parts.clone()));
        assert_eq!((whole.as_bytes(), largest), (&*parts.concat(), BLOCK_BYTES));
    }

    #[test]
    fn a_text_holds_no_copy_of_what_is_shared() {
        let shared = Bytes::from(vec![b'x'; 1 << 20]);
        let tailored = Tailored::new([shared.clone()], |_, _| true).unwrap();
        assert!(!shared.is_unique() && tailored.parts.front().unwrap().as_ptr() == shared.as_ptr());
    }
}
