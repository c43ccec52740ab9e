//! Small dense square matrices, row by row.

/// A square matrix.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    n: usize,
    cells: Vec<f64>,
}

impl Matrix {
    /// From a function of row and column.
    pub(super) fn from_fn(n: usize, cell: impl Fn(usize, usize) -> f64) -> Matrix {
        let cells = (0..n * n).map(|at| cell(at / n, at % n)).collect();
        Matrix { n, cells }
    }

    pub(super) fn row(&self, i: usize) -> &[f64] {
        &self.cells[i * self.n..(i + 1) * self.n]
    }

    pub(super) fn times(&self, other: &Matrix) -> Matrix {
        let n = self.n;
        let mut cells = vec![0.0; n * n];
        for i in 0..n {
            let target = &mut cells[i * n..(i + 1) * n];
            for (k, factor) in self.row(i).iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
                for (cell, value) in target.iter_mut().zip(other.row(k)) {
                    *cell += factor * value;
                }
            }
        }
        Matrix { n, cells }
    }

    pub(super) fn plus(&self, other: &Matrix) -> Matrix {
        let cells = self.cells.iter().zip(&other.cells).map(|(a, b)| a + b).collect();
        Matrix { n: self.n, cells }
    }

    /// The identity less this.
    pub(super) fn identity_less(&self) -> Matrix {
        Matrix::from_fn(self.n, |i, j| f64::from(u8::from(i == j)) - self.cells[i * self.n + j])
    }

    /// Row vector times this.
    pub(super) fn after(&self, row: &[f64]) -> Vec<f64> {
        let mut product = vec![0.0; self.n];
        for (factor, values) in row.iter().zip(self.cells.chunks_exact(self.n)) {
            for (cell, value) in product.iter_mut().zip(values) {
                *cell += factor * value;
            }
        }
        product
    }

    /// The largest sum of a row's absolute values.
    pub(super) fn norm(&self) -> f64 {
        let sum = |row: &[f64]| row.iter().map(|cell| cell.abs()).sum::<f64>();
        self.cells.chunks_exact(self.n).map(sum).fold(0.0, f64::max)
    }

    /// X with `self` X = B for each B, by elimination with partial pivoting. `None` where a pivot vanishes.
    pub(super) fn solve(mut self, mut right: Vec<Matrix>) -> Option<Vec<Matrix>> {
        let n = self.n;
        for k in 0..n {
            let size = |i: &usize| self.cells[i * n + k].abs();
            let pivot = (k..n).max_by(|a, b| size(a).total_cmp(&size(b)))?;
            if size(&pivot) == 0.0 || size(&pivot).is_nan() {
                return None;
            }
            self.swap(k, pivot);
            right.iter_mut().for_each(|matrix| matrix.swap(k, pivot));
            for i in k + 1..n {
                let factor = self.cells[i * n + k] / self.cells[k * n + k];
                if factor != 0.0 {
                    self.subtract(i, k, factor, k);
                    right.iter_mut().for_each(|matrix| matrix.subtract(i, k, factor, 0));
                }
            }
        }
        for k in (0..n).rev() {
            let pivot = self.cells[k * n + k];
            for matrix in &mut right {
                matrix.cells[k * n..(k + 1) * n].iter_mut().for_each(|cell| *cell /= pivot);
                for i in 0..k {
                    let factor = self.cells[i * n + k];
                    if factor != 0.0 {
                        matrix.subtract(i, k, factor, 0);
                    }
                }
            }
        }
        Some(right)
    }

    fn swap(&mut self, a: usize, b: usize) {
        if a != b {
            let (low, high) = self.cells.split_at_mut(a.max(b) * self.n);
            let start = a.min(b) * self.n;
            low[start..start + self.n].swap_with_slice(&mut high[..self.n]);
        }
    }

    /// Row i less `factor` times row k, from a column on; i and k differ.
    fn subtract(&mut self, i: usize, k: usize, factor: f64, from: usize) {
        let n = self.n;
        let (low, high) = self.cells.split_at_mut(i.max(k) * n);
        let (target, source) =
            if i > k { (&mut high[..n], &low[k * n..(k + 1) * n]) } else { (&mut low[i * n..(i + 1) * n], &high[..n]) };
        for (cell, value) in target[from..].iter_mut().zip(&source[from..]) {
            *cell -= factor * value;
        }
    }

    /// The stationary distribution of a stochastic matrix from whose every state the first can be
    /// reached, by elimination without subtractions: W. Grassmann, M. Taksar, D. Heyman, Operations
    /// Research 33(5), 1985.
    pub(super) fn stationary(mut self) -> Vec<f64> {
        let n = self.n;
        let mut left = vec![1.0; n];
        for k in (1..n).rev() {
            let out: f64 = self.row(k)[..k].iter().sum();
            left[k] = out;
            if out <= 0.0 || out.is_nan() {
                // Never left again downwards, so it is not visited.
                continue;
            }
            for i in 0..k {
                let factor = self.cells[i * n + k] / out;
                if factor != 0.0 {
                    let (low, high) = self.cells.split_at_mut(k * n);
                    for (cell, value) in low[i * n..i * n + k].iter_mut().zip(&high[..k]) {
                        *cell += factor * value;
                    }
                }
            }
        }
        let mut weights = vec![0.0; n];
        weights[0] = 1.0;
        for k in 1..n {
            if left[k] > 0.0 {
                weights[k] = (0..k).map(|i| weights[i] * self.cells[i * n + k]).sum::<f64>() / left[k];
            }
        }
        let total: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= total);
        weights
    }
}
