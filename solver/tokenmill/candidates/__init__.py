"""From a stage, a catalogue and a topology to evaluated, pruned columns."""
