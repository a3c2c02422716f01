"""One name for blocks in several places, through a socket into an index: of such blocks it knows too
little, never too much, and nothing stays behind.
"""

from kvr_testlib import A, B, C, CLEARED, D, IndexerTest, main, removed, stored

CPU = {"medium": "CPU"}


class PlacedNames(IndexerTest):
    def names(self):
        return sorted(block[4] for block in self.indexer.dumped())

    def test_one_name_under_two_parents(self):
        engine = self.engine(1)
        for last in (removed([12]), removed([12], remaining_copy_counts=[0])):
            with self.subTest(last):
                self.send(engine, stored([11], None, A), stored([13], None, C), stored([12], 11, B))
                self.expect(A + B, 8)
                self.send(engine, stored([12], 13, B), stored([14], 12, D))
                self.expect(A + B, 4)
                self.expect(C + B + D, 4)
                self.send(engine, removed([12]), last)
                self.expect(A + B, 4)
                self.assertEqual(self.names(), [11, 13])
                self.send(engine, stored([12], 13, B))
                self.expect(C + B, 8)
                self.send(engine, CLEARED)

    def test_no_cycle(self):
        """Report 5, in two events."""
        engine = self.engine(1)
        self.send(engine, stored([11], None, A), stored([12], 11, B), stored([11], 12, A))
        self.assertEqual(self.names(), [])
        self.send(engine, removed([11]), removed([11]))
        self.expect(A + B, 0)
        self.assertEqual(self.names(), [])

    def test_a_host_copy_without_its_parent(self):
        engine = self.engine(1)
        self.send(engine, stored([11, 12], None, A + B), stored([12], None, B, **CPU))
        self.expect(B, 0)
        self.assertIn(self.indexer.tiers(B), (None, (0, 0, 0)))
        self.expect(A + B, 8)
        self.send(engine, removed([12]))
        self.assertEqual(self.indexer.tiers(A + B), (4, 8, 8))
        self.send(engine, removed([12], **CPU))
        self.assertEqual(self.indexer.tiers(A + B), (4, 4, 4))


if __name__ == "__main__":
    main()
