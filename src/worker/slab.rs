//! Connections by slot and generation. An event that arrives late, for a former connection of a slot, finds no
//! connection.

use crate::types::ConnId;

/// Mask of a generation, which has 31 bits. A slot and a generation fit into a 64-bit token and leave room for
/// tokens of other kinds.
const GENERATION_MASK: u32 = 0x7fff_ffff;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values in slots that are reused. Each use of a slot has another generation.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts `value` into a free slot. Returns `None` after 2^32 slots.
    pub(super) fn insert(&mut self, value: T) -> Option<ConnId> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len()).ok()?;
                self.slots.push(Slot { generation: 0, value: None });
                slot
            }
        };
        let entry = self.slots.get_mut(usize::try_from(slot).ok()?)?;
        entry.value = Some(value);
        Some(ConnId { slot, generation: entry.generation })
    }

    /// The id that the next value will have.
    pub(super) fn next_id(&self) -> Option<ConnId> {
        let Some(slot) = self.free.last().copied() else {
            return Some(ConnId { slot: u32::try_from(self.slots.len()).ok()?, generation: 0 });
        };
        let generation = self.slots.get(usize::try_from(slot).ok()?)?.generation;
        Some(ConnId { slot, generation })
    }

    /// Removes and returns a value. Its id is no longer valid after this.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<T> {
        let slot = self.slot_mut(id)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.push(id.slot);
        Some(value)
    }

    /// Returns the value of a live id.
    #[must_use]
    pub(super) fn get(&self, id: ConnId) -> Option<&T> {
        let slot = self.slots.get(usize::try_from(id.slot).ok()?)?;
        if slot.generation == id.generation { slot.value.as_ref() } else { None }
    }

    /// Returns the value of a live id, mutably.
    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        self.slot_mut(id)?.value.as_mut()
    }

    /// Returns the live ids, by slot.
    #[must_use]
    pub(super) fn ids(&self) -> Vec<ConnId> {
        let living = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        living
            .filter_map(|(index, slot)| {
                Some(ConnId { slot: u32::try_from(index).ok()?, generation: slot.generation })
            })
            .collect()
    }

    /// The values, by slot.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// The number of values.
    #[must_use]
    pub(super) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if there are no values.
    #[must_use]
    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot_mut(&mut self, id: ConnId) -> Option<&mut Slot<T>> {
        let slot = self.slots.get_mut(usize::try_from(id.slot).ok()?)?;
        (slot.generation == id.generation).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Seed;

    #[test]
    fn q_07_a_stale_id_finds_nobody_over_a_million_random_operations() {
        let mut random = Seed::from_number(7).random();
        let mut slab = Slab::default();
        let (mut living, mut dead): (Vec<(ConnId, u64)>, Vec<ConnId>) = (Vec::new(), Vec::new());
        for n in 0..1_000_000u64 {
            if living.is_empty() || random.chance(0.5) {
                living.push((slab.insert(n).unwrap(), n));
            } else {
                let at = usize::try_from(random.below(living.len() as u64)).unwrap();
                let (id, value) = living.swap_remove(at);
                assert_eq!(slab.remove(id), Some(value));
                dead.push(id);
            }
            if let Some(id) = dead.get(usize::try_from(random.below(dead.len() as u64)).unwrap()) {
                assert_eq!(slab.get(*id), None);
                assert_eq!(slab.remove(*id), None);
            }
            if dead.len() > 1000 {
                dead.drain(..500);
            }
        }
        assert_eq!(slab.len(), living.len());
        assert!(living.iter().all(|(id, value)| slab.get(*id) == Some(value)));
        assert_eq!(slab.ids().len(), living.len());
    }
}
