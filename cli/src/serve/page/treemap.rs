//! Treemaps: divides a rectangle into rectangles with given areas that are as square as possible. Pure.
//!
//! The squarified layout of Bruls, Huizing and van Wijk (2000): rows are laid along the shorter side of the remaining
//! space. A row takes the next area as long as that does not make its worst rectangle longer.

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Rect {
    pub(crate) fn new(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self {
            x,
            y,
            width,
            height,
        }
    }

    fn area(&self) -> f64 {
        self.width * self.height
    }

    fn shorter(&self) -> f64 {
        self.width.min(self.height)
    }

    /// Cuts off a row of these areas along the shorter side. Returns its rectangles, and the remaining space.
    fn cut(&self, areas: &[f64]) -> (Vec<Self>, Self) {
        let sum: f64 = areas.iter().sum();
        let is_column = self.width >= self.height;
        // Rounding must not make a side negative or too long.
        let depth = (sum / self.shorter().max(f64::MIN_POSITIVE)).min(self.width.max(self.height));
        let mut along: f64 = 0.0;
        let rects = areas.iter().map(|area| {
            let left = (self.shorter() - along).max(0.0);
            let length = (area / depth.max(f64::MIN_POSITIVE)).min(left);
            let rect = match is_column {
                true => Self::new(self.x, self.y + along, depth, length),
                false => Self::new(self.x + along, self.y, length, depth),
            };
            along += length;
            rect
        });
        let rects = rects.collect();
        let rest = match is_column {
            true => Self::new(
                self.x + depth,
                self.y,
                (self.width - depth).max(0.0),
                self.height,
            ),
            false => Self::new(
                self.x,
                self.y + depth,
                self.width,
                (self.height - depth).max(0.0),
            ),
        };
        (rects, rest)
    }
}

/// Divides `within` into rectangles in proportion to `weights`, which are positive and in descending order.
pub(crate) fn squarified(weights: &[f64], within: Rect) -> Vec<Rect> {
    let sum: f64 = weights.iter().sum();
    let scale = within.area() / sum.max(f64::MIN_POSITIVE);
    let areas: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
    let (mut rest, mut left) = (areas.as_slice(), within);
    let mut placed = Vec::with_capacity(areas.len());
    while !rest.is_empty() {
        let (row, others) = rest.split_at(row_len(rest, left.shorter()));
        let (rects, remaining) = left.cut(row);
        placed.extend(rects);
        (rest, left) = (others, remaining);
    }
    placed
}

/// The number of areas in the next row.
fn row_len(areas: &[f64], side: f64) -> usize {
    let (mut sum, mut worst_before) = (0.0, f64::INFINITY);
    let largest = areas.first().copied().unwrap_or_default();
    for (len, area) in areas.iter().enumerate() {
        sum += area;
        let now = worst(largest, *area, sum, side);
        if now > worst_before {
            return len.max(1);
        }
        worst_before = now;
    }
    areas.len()
}

/// The aspect ratio of the longest rectangle in a row.
fn worst(largest: f64, smallest: f64, sum: f64, side: f64) -> f64 {
    let (side, sum) = (side * side, sum * sum);
    (side * largest / sum).max(sum / (side * smallest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aspect(rect: &Rect) -> f64 {
        (rect.width / rect.height).max(rect.height / rect.width)
    }

    #[test]
    fn the_example_of_the_paper_comes_out() {
        let within = Rect::new(0.0, 0.0, 6.0, 4.0);
        let rects = squarified(&[6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0], within);
        let expected = [
            (0.0, 0.0, 3.0, 2.0),
            (0.0, 2.0, 3.0, 2.0),
            (3.0, 0.0, 12.0 / 7.0, 7.0 / 3.0),
            (3.0 + 12.0 / 7.0, 0.0, 9.0 / 7.0, 7.0 / 3.0),
        ];
        for (rect, (x, y, width, height)) in rects.iter().zip(expected) {
            let found = [rect.x, rect.y, rect.width, rect.height];
            for (found, expected) in found.iter().zip([x, y, width, height]) {
                assert!((found - expected).abs() < 1e-9, "{rect:?}");
            }
        }
    }

    #[test]
    fn areas_are_as_weights_and_nothing_overlaps_or_sticks_out() {
        let mut weights: Vec<f64> = (1..200).map(|n| 1e6 / f64::from(n * n)).collect();
        weights.push(1e-3);
        let within = Rect::new(10.0, 20.0, 1000.0, 420.0);
        let rects = squarified(&weights, within);
        assert_eq!(rects.len(), weights.len());
        let sum: f64 = weights.iter().sum();
        for (rect, weight) in rects.iter().zip(&weights) {
            let expected = within.area() * weight / sum;
            assert!((rect.area() - expected).abs() < 1e-6 * within.area());
            assert!(rect.x >= 10.0 - 1e-6 && rect.x + rect.width <= 1010.0 + 1e-6);
            assert!(rect.y >= 20.0 - 1e-6 && rect.y + rect.height <= 440.0 + 1e-6);
        }
        for (at, one) in rects.iter().enumerate() {
            for other in &rects[at + 1..] {
                let wide = (one.x + one.width).min(other.x + other.width) - one.x.max(other.x);
                let high = (one.y + one.height).min(other.y + other.height) - one.y.max(other.y);
                assert!(wide.max(0.0) * high.max(0.0) < 1e-6, "{one:?} {other:?}");
            }
        }
        assert!(rects.iter().take(20).all(|rect| aspect(rect) < 5.0));
    }

    #[test]
    fn equal_ones_are_square_and_none_is_none() {
        let rects = squarified(&[1.0; 4], Rect::new(0.0, 0.0, 2.0, 2.0));
        assert!(rects.iter().all(|rect| (aspect(rect) - 1.0).abs() < 1e-9));
        assert_eq!(squarified(&[], Rect::new(0.0, 0.0, 2.0, 2.0)), []);
    }
}
