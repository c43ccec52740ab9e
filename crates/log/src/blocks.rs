//! Finds the good blocks in a stream of bytes that may be damaged anywhere.

use std::io;

use crate::error::ReadError;
use crate::format::{BLOCK_HEAD, BLOCK_MAGIC, BlockHead, MAGIC};
use crate::record::WINDOW;

/// How much is asked for at once.
const CHUNK: usize = 128 << 10;
/// The most extra bytes that checksums over bad payloads may cost, beyond twice the bytes read.
/// After that, whole blocks are skipped. So the time stays linear in the input, even for hostile
/// inputs.
const WASTE: u64 = 4 << 20;

/// The input, seen through a window that starts at the next block.
pub(crate) struct Blocks<R> {
    input: R,
    /// Longer than `end` by at least a record's window, so that decoding need not look where the input ends.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The file's byte at `start`.
    offset: u64,
    eof: bool,
    wasted: u64,
    /// How far the next `skip` may go without looking.
    bad_extent: usize,
    skipped: Skipped,
    skipping: bool,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Skipped {
    pub(crate) bytes: u64,
    pub(crate) places: u64,
    pub(crate) first: Option<u64>,
}

/// What stands next.
pub(crate) enum Next {
    /// A block, whole and good.
    Good(BlockHead),
    /// Something else; go on with [`Blocks::skip`].
    Bad,
    /// Nothing.
    End,
}

impl<R: io::Read> Blocks<R> {
    pub(crate) fn new(input: R) -> Self {
        Blocks {
            input,
            buffer: vec![0; CHUNK + WINDOW],
            start: 0,
            end: 0,
            offset: 0,
            eof: false,
            wasted: 0,
            bad_extent: 1,
            skipped: Skipped::default(),
            skipping: false,
        }
    }

    pub(crate) fn skipped(&self) -> Skipped {
        self.skipped
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes the file's first bytes.
    pub(crate) fn magic(&mut self) -> Result<(), ReadError> {
        self.fill(MAGIC.len())?;
        let found = &self.buffer[..self.end.min(MAGIC.len())];
        if found == MAGIC {
            self.advance(MAGIC.len());
            return Ok(());
        }
        let text = found.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        let hint = match found {
            [] => "it is empty",
            _ if text => "it is text; a System file?",
            _ => "its first bytes are others",
        };
        Err(ReadError::NotALog { hint })
    }

    pub(crate) fn peek(&mut self) -> Result<Next, ReadError> {
        self.bad_extent = 1;
        if !self.fill(BLOCK_HEAD)? {
            return Ok(if self.start == self.end { Next::End } else { Next::Bad });
        }
        let Some(head) = BlockHead::decode(&self.buffer[self.start..self.end]) else { return Ok(Next::Bad) };
        let whole = BLOCK_HEAD + head.length as usize;
        if !self.fill(whole)? {
            return Ok(Next::Bad);
        }
        if crc32fast::hash(&self.buffer[self.start + BLOCK_HEAD..self.start + whole]) != head.payload_crc {
            self.wasted += u64::from(head.length);
            if self.wasted > 2 * self.offset + WASTE {
                self.bad_extent = whole;
            }
            return Ok(Next::Bad);
        }
        self.skipping = false;
        Ok(Next::Good(head))
    }

    /// Passes over a good block and says where its payload stands in the buffer.
    pub(crate) fn take(&mut self, head: &BlockHead) -> std::ops::Range<usize> {
        let at = self.start + BLOCK_HEAD;
        self.advance(BLOCK_HEAD + head.length as usize);
        at..self.start
    }

    /// Passes over a good block as if it were damaged.
    pub(crate) fn discard(&mut self, head: &BlockHead) {
        self.count(BLOCK_HEAD + head.length as usize);
    }

    pub(crate) fn discard_rest(&mut self) -> io::Result<()> {
        self.skipping = false;
        while self.fill(1)? {
            self.count(self.end - self.start);
            self.compact();
        }
        Ok(())
    }

    /// Forgets what was taken, whose places in the buffer end here.
    pub(crate) fn compact(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    /// After [`Next::Bad`]: goes to where a block might start. Only when nothing taken is in use.
    pub(crate) fn skip(&mut self) -> Result<(), ReadError> {
        let mut step = self.bad_extent;
        loop {
            step = step.min(self.end - self.start);
            self.count(step);
            self.compact();
            if !self.fill(BLOCK_MAGIC.len())? {
                self.count(self.end - self.start);
                return Ok(());
            }
            let rest = &self.buffer[self.start..self.end];
            match rest.windows(BLOCK_MAGIC.len()).position(|window| window == BLOCK_MAGIC) {
                Some(0) => return Ok(()),
                Some(at) => step = at,
                None => step = rest.len() - (BLOCK_MAGIC.len() - 1),
            }
        }
    }

    /// Bytes of the buffer.
    pub(crate) fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The bytes from `at` on. `at` lies within a taken part; the bytes beyond that part are
    /// arbitrary.
    #[inline]
    pub(crate) fn window(&self, at: usize) -> &[u8; WINDOW] {
        self.buffer[at..].first_chunk().expect("the buffer is longer than its contents")
    }

    fn advance(&mut self, n: usize) {
        self.start += n;
        self.offset += n as u64;
    }

    /// Passes over damage.
    fn count(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        if !self.skipping {
            self.skipping = true;
            self.skipped.places += 1;
            self.skipped.first.get_or_insert(self.offset);
        }
        self.skipped.bytes += n as u64;
        self.advance(n);
    }

    /// Reads until `n` bytes stand from `start` on; false where the input ends before. Memory grows only
    /// with what really came.
    fn fill(&mut self, n: usize) -> io::Result<bool> {
        while self.end - self.start < n && !self.eof {
            if self.buffer.len() < self.end + WINDOW + CHUNK / 2 {
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
            let room = self.buffer.len() - WINDOW;
            match self.input.read(&mut self.buffer[self.end..room]) {
                Ok(0) => self.eof = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.end - self.start >= n)
    }
}
