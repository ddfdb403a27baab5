"""Checks expected.toml itself."""

import importlib
import unittest

from features import HERE, PackageTest, expected


class ExpectedTest(unittest.TestCase):
    def test_each_expected_refusal_is_one_of_a_tried_feature(self):
        for path in HERE.glob("*_test.py"):
            importlib.import_module(path.stem)
        tried = {(of.package, test.feature, model) for of in PackageTest.__subclasses__() for test in vars(of).values()
                 if hasattr(test, "feature") for model in test.models}
        self.assertEqual(set(expected()) - tried, set())


if __name__ == "__main__":
    unittest.main()
