"""Files of pictures become augmented batches: decoded at reduced size, mapped at random, boxes moved along."""
