"""Classic control: the five tasks of Gymnasium's `classic_control`, whose own classes are the originals."""
