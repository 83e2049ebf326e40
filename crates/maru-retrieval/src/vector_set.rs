//! Vectors in memory and exact nearest-neighbour search.

use std::collections::HashMap;

use super::hash_embedding::normalise;

/// From this size on, quantised vectors select the candidates and floats rank them:
/// comparing bytes reads a quarter of the memory.
const QUANTIZED_SEARCH_MIN_VECTORS: usize = 20_000;
/// Additional candidates that are compared as floats.
const EXTRA_RESCORED_VECTORS: usize = 50;

/// Normalised vectors of one dimension, each with the number of its document.
#[derive(Debug, Default)]
pub(super) struct VectorSet {
    dimension: usize,
    document_numbers: Vec<i64>,
    positions: HashMap<i64, usize>,
    floats: Vec<f32>,
    /// The quantised vectors: a component is a byte times the scale of its vector.
    bytes: Vec<i8>,
    scales: Vec<f32>,
}

impl VectorSet {
    pub(super) fn new(dimension: usize) -> Self {
        Self {
            dimension,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.document_numbers.len()
    }

    /// Inserts a vector, or replaces the one of `number`. Vectors of another dimension
    /// are ignored.
    pub(super) fn upsert(&mut self, number: i64, mut vector: Vec<f32>) {
        if vector.len() != self.dimension {
            return;
        }
        normalise(&mut vector);
        let (bytes, scale) = quantise(&vector);
        match self.positions.get(&number) {
            Some(position) => {
                let part = position * self.dimension..(position + 1) * self.dimension;
                self.floats[part.clone()].copy_from_slice(&vector);
                self.bytes[part].copy_from_slice(&bytes);
                self.scales[*position] = scale;
            }
            None => {
                self.positions.insert(number, self.document_numbers.len());
                self.document_numbers.push(number);
                self.floats.extend_from_slice(&vector);
                self.bytes.extend_from_slice(&bytes);
                self.scales.push(scale);
            }
        }
    }

    /// Returns the `count` nearest documents and their cosine similarity, nearest first;
    /// none if the query has another dimension.
    pub(super) fn nearest(&self, query: &[f32], count: usize) -> Vec<(i64, f32)> {
        if query.len() != self.dimension || self.dimension == 0 {
            return Vec::new();
        }
        let mut query = query.to_vec();
        normalise(&mut query);
        let positions: Vec<usize> = if self.len() <= QUANTIZED_SEARCH_MIN_VECTORS {
            (0..self.len()).collect()
        } else {
            self.quantized_candidates(&query, count + EXTRA_RESCORED_VECTORS)
        };
        let exact = positions.into_iter().map(|position| {
            let part = &self.floats[position * self.dimension..(position + 1) * self.dimension];
            (position, dot(&query, part))
        });
        let best = top_k(exact.collect(), count).into_iter();
        best.map(|(position, score)| (self.document_numbers[position], score))
            .collect()
    }

    /// Returns the positions of the `count` best vectors by their quantised form.
    fn quantized_candidates(&self, query: &[f32], count: usize) -> Vec<usize> {
        let (query, _) = quantise(query);
        let query: Vec<i16> = query.into_iter().map(i16::from).collect();
        let rows = self.bytes.chunks_exact(self.dimension);
        let scored = rows.zip(&self.scales).enumerate();
        #[expect(clippy::cast_precision_loss, reason = "only the order counts")]
        let scored = scored.map(|(at, (row, scale))| (at, dot_bytes(&query, row) as f32 * scale));
        let best = top_k(scored.collect(), count).into_iter();
        best.map(|(position, _)| position).collect()
    }
}

/// Returns the `count` highest scores, highest first; equal scores by position.
fn top_k(mut scored: Vec<(usize, f32)>, count: usize) -> Vec<(usize, f32)> {
    let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if count == 0 {
        return Vec::new();
    }
    if count < scored.len() {
        scored.select_nth_unstable_by(count - 1, order);
        scored.truncate(count);
    }
    scored.sort_unstable_by(order);
    scored
}

/// Returns a byte for each component, and the scale that turns bytes into components.
fn quantise(vector: &[f32]) -> (Vec<i8>, f32) {
    let largest = vector
        .iter()
        .fold(0.0_f32, |largest, it| largest.max(it.abs()));
    if largest == 0.0 {
        return (vec![0; vector.len()], 0.0);
    }
    let scale = largest / 127.0;
    #[expect(clippy::cast_possible_truncation, reason = "it is within ±127")]
    let bytes = vector.iter().map(|it| (it / scale).round() as i8);
    (bytes.collect(), scale)
}

/// Dot product in sixteen partial sums, which the compiler vectorises.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_chunks, a) = a.as_chunks::<16>();
    let (b_chunks, b) = b.as_chunks::<16>();
    let mut sums = [0.0_f32; 16];
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for at in 0..16 {
            sums[at] += x[at] * y[at];
        }
    }
    let rest: f32 = a.iter().zip(b).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f32>() + rest
}

/// Dot product of quantised vectors. Products of 16 bits have vector instructions
/// everywhere; widening the query once for all rows is a third faster.
fn dot_bytes(query: &[i16], bytes: &[i8]) -> i32 {
    let product = |(x, y): (&i16, &i8)| i32::from(*x) * i32::from(i16::from(*y));
    query.iter().zip(bytes).map(product).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deterministic pseudo-random numbers.
    fn noise(seed: u64, length: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn nearest_come_first_and_upsert_replaces() {
        let mut vectors = VectorSet::new(2);
        vectors.upsert(10, vec![1.0, 0.0]);
        vectors.upsert(20, vec![5.0, 5.0]);
        vectors.upsert(30, vec![0.0, 0.0]);
        vectors.upsert(40, vec![1.0, 2.0, 3.0]);
        let numbers = |vectors: &VectorSet, count| -> Vec<i64> {
            let found = vectors.nearest(&[0.0, 3.0], count).into_iter();
            found.map(|(number, _)| number).collect()
        };
        assert_eq!(numbers(&vectors, 9), [20, 10, 30]);
        vectors.upsert(10, vec![0.0, 9.0]);
        assert_eq!(numbers(&vectors, 2), [10, 20]);
        assert_eq!(vectors.len(), 3);
        assert!(numbers(&vectors, 0).is_empty());
        assert!(vectors.nearest(&[1.0], 1).is_empty());
    }

    #[test]
    fn quantised_search_finds_the_exact_neighbours() {
        let mut vectors = VectorSet::new(40);
        for number in 0..QUANTIZED_SEARCH_MIN_VECTORS as i64 + 500 {
            vectors.upsert(number, noise(number as u64 + 1, 40));
        }
        for seed in 0..20 {
            let query = noise(seed + 1_000_000, 40);
            let mut exact: Vec<(i64, f32)> = Vec::new();
            let mut unit = query.clone();
            normalise(&mut unit);
            for (number, row) in vectors.floats.chunks(40).enumerate() {
                exact.push((number as i64, dot(&unit, row)));
            }
            exact.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            assert_eq!(vectors.nearest(&query, 10), exact[..10]);
        }
    }

    #[test]
    fn dot_product_is_right_for_every_length() {
        for length in 0..70 {
            let (a, b) = (noise(1, length), noise(2, length));
            let expected: f32 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert!((dot(&a, &b) - expected).abs() < 1e-4);
        }
    }
}
